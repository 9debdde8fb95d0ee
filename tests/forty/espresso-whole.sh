#!/bin/bash
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=02:00:00

export OMP_NUM_THREADS=1
srun -n 8 pw.x -npool 4 -i in.scf
