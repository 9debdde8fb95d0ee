"""What commands print: jobs, plans and moves in words, tables and pictures."""
