"""EJB: a middleware daemon that makes rigid parallel jobs elastic in front of an unchanged batch system."""

__version__ = "0.1.0"
