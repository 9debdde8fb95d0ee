"""What a look at the batch system shows, subjob by subjob."""
