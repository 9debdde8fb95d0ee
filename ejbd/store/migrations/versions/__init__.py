"""One revision a file, numbered in order."""
