"""Policies, checkpoint engines and batch systems by name: EJB's own, and those that packages offer by entry points.

docs/plugins.md has an example of each.
"""
