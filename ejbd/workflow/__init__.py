"""Workflows of stages, each with a width of its own (E-HPC, Fox et al. 2017): plan files, graphs, core-hours. Pure."""
