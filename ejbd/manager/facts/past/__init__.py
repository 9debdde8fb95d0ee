"""What earlier jobs have taught."""
