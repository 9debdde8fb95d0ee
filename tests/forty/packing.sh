#!/bin/bash
#SBATCH -n 4
#SBATCH -t 20
#SBATCH --mem-per-cpu=50M

for i in 1 2 3 4; do
    srun -n 1 --exact ./task.x $i &
done
wait
