"""Which user asks, what that user may do, and how much of it."""
