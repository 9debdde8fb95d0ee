#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=2
#SBATCH --time=00:30:00
#SBATCH --mem=200M

export JULIA_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun julia --threads $SLURM_CPUS_PER_TASK sweep.jl
