"""Profiles: how applications that checkpoint themselves are stopped, told apart and run again at another width."""
