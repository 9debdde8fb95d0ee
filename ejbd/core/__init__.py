"""The brain: pure functions over frozen values. No I/O, no clock, no randomness; time is an argument."""
