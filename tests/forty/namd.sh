#!/bin/bash
#SBATCH -n 4 -t 0-01:00 --mem-per-cpu=80M -q normal
#SBATCH --nice=10
#SBATCH --profile=none

mpiexec -n "$SLURM_NTASKS" namd2 run.conf > run.log
wc -l < run.log
