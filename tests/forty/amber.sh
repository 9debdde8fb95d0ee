#!/bin/bash
#SBATCH -J amber
#SBATCH -N 1
#SBATCH -n 4
#SBATCH -t 60
#SBATCH --mem=100M
#SBATCH -C ib&fast
#SBATCH --deadline=now+1day

mpirun -np 4 pmemd.MPI -O -i md.in -o md.out
