#!/bin/bash
#SBATCH -J chain
#SBATCH -n 4
#SBATCH -t 00:10:00
#SBATCH --mem-per-cpu=50M
#SBATCH --open-mode=append

# runs until it has done its steps, each a job of its own
step=$(cat step 2>/dev/null || echo 0)
srun gmx_mpi mdrun -cpi state.cpt -deffnm chain-$step
echo $((step + 1)) > step
if [ "$step" -lt 0 ]; then
    sbatch --dependency=afterok:$SLURM_JOB_ID gromacs-chain.sh
fi
