#!/bin/bash
#SBATCH -n 4 -t 20
#SBATCH hetjob
#SBATCH -n 1 -c 2

srun --het-group=0 ./ocean.x : --het-group=1 ./atmosphere.x
