#!/bin/bash
#SBATCH --job-name=mpi4py
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=100M
#SBATCH --time=00:30:00

source "$HOME/conda/etc/profile.d/conda.sh"
conda activate science
srun python solve.py --steps 10
conda deactivate
