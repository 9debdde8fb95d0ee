#!/bin/bash
#SBATCH -n 4
#SBATCH -t 10
#SBATCH --mem-per-cpu=60M
#SBATCH --export=ALL,R_LIBS=/opt/r

echo "$R_LIBS"
mpirun Rscript cluster.R
