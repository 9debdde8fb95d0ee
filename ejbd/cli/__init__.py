"""`ejb`, the command line: an HTTP client of the daemon."""
