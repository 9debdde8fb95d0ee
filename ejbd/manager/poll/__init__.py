"""What one poll of the batch system leads to: what was seen, and the jobs that need more."""
