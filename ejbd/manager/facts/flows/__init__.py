"""Workflows: how far they are, what their files say, and what their jobs cost."""
