#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=2
#SBATCH -c 2
#SBATCH --mem=250M
#SBATCH -t 12:00:00
#SBATCH -C ib

export OMP_NUM_THREADS=2
srun -c 2 vasp_gam
