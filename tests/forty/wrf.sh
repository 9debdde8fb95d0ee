#!/bin/bash
#SBATCH --job-name=wrf
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --constraint=ib

ulimit -s unlimited
srun ./real.exe
srun ./wrf.exe
tail -n 1 rsl.out.0000
