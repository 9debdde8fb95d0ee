"""What is done ahead of an end: signals, warnings, periodic checkpoints."""
