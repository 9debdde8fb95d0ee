#!/bin/bash
#SBATCH -J hybrid
#SBATCH -N 2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=2
#SBATCH --mem=200M
#SBATCH -t 0:20:00
#SBATCH -o hybrid.%j.out
#SBATCH -e hybrid.%j.err

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
echo "$SLURM_NTASKS ranks of $OMP_NUM_THREADS threads" >&2
srun --cpus-per-task=$SLURM_CPUS_PER_TASK gmx_mpi mdrun -ntomp $OMP_NUM_THREADS -deffnm npt
