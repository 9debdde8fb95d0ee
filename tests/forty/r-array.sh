#!/bin/bash
#SBATCH --job-name=boot
#SBATCH --array=1-3
#SBATCH --mem=100M
#SBATCH --time=10

srun Rscript boot.R $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT
