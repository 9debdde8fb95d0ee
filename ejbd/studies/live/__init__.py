"""Logs that are played on a real Slurm or PBS, and how far the simulator is from them (docs/sim-to-real.md)."""
