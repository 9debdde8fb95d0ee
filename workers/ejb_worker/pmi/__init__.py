"""PMI-1, the wire-up of the MPICH family, without mpiexec: who the ranks are and where they can be reached."""
