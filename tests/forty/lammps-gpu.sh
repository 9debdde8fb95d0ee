#!/bin/bash
#SBATCH -N 1
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
#SBATCH -c 2
#SBATCH -t 30

srun lmp -k on g 2 -sf kk -in in.lj
