"""PMI-1, the wire-up of the MPICH family, without mpiexec: which ranks there are and where they can be reached."""
