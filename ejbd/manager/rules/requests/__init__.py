"""Requests of users, what workers are told to do, and their reports."""
