#!/bin/bash
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --time=12:00:00
#SBATCH --mem-per-cpu=100M
#SBATCH --account=physics

ulimit -s unlimited
srun vasp_std > vasp.out
