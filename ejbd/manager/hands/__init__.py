"""Hands on what is not in the database: the spool, and the orders in it."""
