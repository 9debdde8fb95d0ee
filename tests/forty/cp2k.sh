#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=50M
#SBATCH -t 60
#SBATCH --comment=water

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK}
srun -u cp2k.psmp -i water.inp -o water.out
