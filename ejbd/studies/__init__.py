"""What reproduces papers and centres' pages, on the simulator: the figures behind docs/ are made here.

The simulator knows nothing of it. It is used by `ejb sim reproduce`, `ejb sim live` and `ejb sim value`.
"""
