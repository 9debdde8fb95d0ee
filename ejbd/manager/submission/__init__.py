"""A job on its way in: what was asked for, whether it is taken, and what it needs."""
