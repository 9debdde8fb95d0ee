#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --exclusive
#SBATCH -t 60
#SBATCH --mail-type=ALL

decomposePar
srun --ntasks=8 snappyHexMesh -parallel -overwrite
srun --ntasks=8 simpleFoam -parallel | tee log.simpleFoam
