"""The manager's end of the worker protocol."""
