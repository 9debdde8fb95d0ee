"""A PBS in a folder: a server with its commands, which behave as the recordings of the real ones show."""
