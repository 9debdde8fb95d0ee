"""What becomes of an end, and how a job is brought to its end."""
