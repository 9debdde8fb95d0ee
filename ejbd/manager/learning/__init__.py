"""What runs teach: the costs of moves and starts, past runs, walltimes."""
