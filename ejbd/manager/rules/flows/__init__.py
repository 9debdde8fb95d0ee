"""Workflows: which of their stages begin, what becomes of an end, and requests of users."""
