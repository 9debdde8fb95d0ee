#!/bin/bash
#SBATCH -n 4
#SBATCH -t 20
#SBATCH --signal=USR2@120
#SBATCH --no-requeue

srun ./segment.x
