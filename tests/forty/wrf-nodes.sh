#!/bin/bash
#SBATCH -J wps
#SBATCH -n 8
#SBATCH -x n1
#SBATCH -t 60
#SBATCH --mem-per-cpu=50M

srun -n 4 ./metgrid.exe
srun -n 8 ./wrf.exe && echo complete
