"""What it is worth to run applications on the number of ranks that fits, beside over-subscription."""
