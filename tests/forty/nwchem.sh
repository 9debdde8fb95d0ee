#!/bin/bash
#SBATCH --job-name=nwchem
#SBATCH -N 2
#SBATCH -n 8
#SBATCH -w n[3-4]
#SBATCH --time=01:00:00
#SBATCH --mem=0

export ARMCI_DEFAULT_SHMMAX=4096
srun nwchem water.nw
