#!/bin/bash
#SBATCH --job-name=scf
#SBATCH --ntasks=4
#SBATCH --time=1:00:00
#SBATCH --mem=250M

mpirun pw.x -npool 2 < in.scf > out.scf
grep -c step out.scf
