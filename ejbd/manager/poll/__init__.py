"""What one look at the batch system leads to: what was seen, and who has to be looked at."""
