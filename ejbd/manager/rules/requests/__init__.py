"""Requests of users, and reports of workers."""
