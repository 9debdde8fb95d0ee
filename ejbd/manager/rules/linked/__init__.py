"""Arrays, their elements, and dependencies."""
