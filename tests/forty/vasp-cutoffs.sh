#!/bin/bash
#SBATCH --job-name=encut
#SBATCH --array=1-4
#SBATCH --ntasks=2
#SBATCH --time=30
#SBATCH --output=encut-%A_%a.out

cut=(0 300 400 500 600)
mkdir -p cut-$SLURM_ARRAY_TASK_ID
cd cut-$SLURM_ARRAY_TASK_ID
echo "ENCUT = ${cut[$SLURM_ARRAY_TASK_ID]}" > INCAR
srun vasp_std
