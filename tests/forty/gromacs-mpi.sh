#!/bin/bash
#SBATCH --job-name=md
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:20:00
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=ada@example.org

set -e
srun gmx_mpi mdrun -deffnm md -maxh 0.3
echo "md ended with $?"
