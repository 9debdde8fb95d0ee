#!/bin/bash
#SBATCH -n 4
#SBATCH -t 60
#SBATCH --requeue
#SBATCH --mem=120M

for volume in 3.9 4.0 4.1; do
    mkdir -p vol-$volume
    (cd vol-$volume && srun vasp_std > out)
done
echo done
