#!/bin/bash
#SBATCH --job-name=motorBike
#SBATCH --ntasks=8
#SBATCH --time=01:00:00
#SBATCH --output=foam.%j.log
#SBATCH --mem=200M

cd "${SLURM_SUBMIT_DIR}"
decomposePar -force
mpirun -np ${SLURM_NTASKS} simpleFoam -parallel
reconstructPar -latestTime
