#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --gres=gpu:2
#SBATCH --mem=200M
#SBATCH --time=00:30:00

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
echo "${#nodes[@]} nodes, ${head_node:+with a head}"
srun torchrun --nnodes 2 --nproc_per_node 2 --rdzv_endpoint $head_node:29500 train.py
