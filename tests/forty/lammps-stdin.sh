#!/bin/bash
#SBATCH --ntasks=8
#SBATCH --time=00:30:00
#SBATCH --mem-per-cpu=100M
#SBATCH --job-name=melt

export OMP_NUM_THREADS=1
srun lmp -log melt.log < in.lj > melt.out
grep -c done melt.out
