"""Workflows that change their width (E-HPC, Fox et al. 2017), on logs."""
