"""Slurm, through its own commands."""

from ejbd.batch.slurm.adapter import SlurmBatch

__all__ = ["SlurmBatch"]
