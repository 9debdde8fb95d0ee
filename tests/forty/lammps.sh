#!/bin/bash
#SBATCH -J lj
#SBATCH -n 8
#SBATCH -t 30
#SBATCH -o lj.out

cd "$SLURM_SUBMIT_DIR"
mpirun -np $SLURM_NTASKS lmp -in in.lj -log none
