#!/bin/bash
#SBATCH -n 4
#SBATCH -t 30

srun -n 1 dask scheduler --scheduler-file s.json &
srun -n 3 dask worker --scheduler-file s.json &
wait
