"""What a batch job of ours is made of: options, script, variables, files."""
