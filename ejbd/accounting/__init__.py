"""What batch systems keep of jobs that have ended: sacct, jobcomp, PBS accounting. A leaf: it asks no other room for
anything.

:func:`ejbd.accounting.reading.read_runs` reads a file; whatever is wrong with a line is told with its number.
"""
