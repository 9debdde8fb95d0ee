"""The simulated world: the batch system and EJB are `ejbd.core`, unchanged; true run times are known here alone."""
