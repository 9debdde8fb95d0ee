"""What becomes of an end."""
