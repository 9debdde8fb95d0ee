#!/bin/bash
#SBATCH -N 1
#SBATCH -n 2
#SBATCH -c 2
#SBATCH -t 1:00:00
#SBATCH --hint=nomultithread
#SBATCH --mem=200M

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun --cpu-bind=cores pw.x -i in.scf > scf.log
cat scf.log
