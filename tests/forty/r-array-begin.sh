#!/bin/bash
#SBATCH -a 1-2
#SBATCH -n 1
#SBATCH -t 10
#SBATCH --begin=now
#SBATCH --mem-per-cpu=50M

mpirun -np 1 Rscript boot.R ${SLURM_ARRAY_TASK_ID}
