"""Queues that are left alone for a while."""
