#!/bin/bash
#SBATCH -n 4
#SBATCH -t 1:00:00
#SBATCH -A physics
#SBATCH --mem-per-cpu=60M

srun pw.x <<EOF_SCF
&control
  calculation = 'scf'
/
EOF_SCF
srun ph.x <<EOF_PH
phonons
EOF_PH
