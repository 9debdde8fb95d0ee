"""`ejb submit`: its line, its options and the environment that it reads."""
