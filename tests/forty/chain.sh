#!/bin/bash
#SBATCH -J segments
#SBATCH -n 4
#SBATCH -t 20
#SBATCH -d singleton
#SBATCH --mem=200M

srun ./segment.x
