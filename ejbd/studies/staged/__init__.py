"""Workflows whose width changes (E-HPC, Fox et al. 2017), on logs."""
