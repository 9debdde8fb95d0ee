#!/bin/bash
#SBATCH -N 2
#SBATCH -n 8
#SBATCH -t 60

ibrun simpleFoam -parallel
