"""Tables of the options of sbatch and of qsub, and what EJB makes of each; both the daemon and `ejb` read them."""
