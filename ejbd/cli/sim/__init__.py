"""`ejb sim`: a command a file, and what several of them have in common."""
