#!/bin/bash
#SBATCH --array=0-3%2
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=150M
#SBATCH --time=00:30:00
#SBATCH --output=fit_%a.out

source "$HOME/conda/etc/profile.d/conda.sh"
conda activate science
srun python fit.py --fold $SLURM_ARRAY_TASK_ID --workers $SLURM_CPUS_PER_TASK
