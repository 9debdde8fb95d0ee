"""OpenPBS and Torque (with Maui or Moab, where they are), through their own commands."""

from ejbd.batch.pbs.adapter import PbsBatch

__all__ = ["PbsBatch"]
