"""The tables by subject. :mod:`ejbd.store.models` has them all: every room takes them from there."""
