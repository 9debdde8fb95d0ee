#!/bin/bash
#SBATCH --job-name=julia
#SBATCH -n 4
#SBATCH --mem-per-cpu=100M
#SBATCH -t 00:30:00

export JULIA_NUM_THREADS=1
mpiexec -n 4 julia --project=. solve.jl
