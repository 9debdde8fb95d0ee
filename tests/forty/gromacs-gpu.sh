#!/bin/bash
#SBATCH --job-name=gpu-md
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=2
#SBATCH --gres=gpu:2
#SBATCH --mem=200M
#SBATCH --time=00:20:00

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
srun -n 2 gmx_mpi mdrun -nb gpu -ntomp $OMP_NUM_THREADS -deffnm gpu
