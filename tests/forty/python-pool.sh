#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=200M
#SBATCH --time=00:30:00

source "$HOME/conda/etc/profile.d/conda.sh"
conda activate science
python pool.py --jobs $SLURM_CPUS_PER_TASK
