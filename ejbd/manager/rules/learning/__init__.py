"""What runs teach, and what is done with it: walltimes, attempts in gaps, measurements."""
