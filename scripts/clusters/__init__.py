"""Private clusters on one machine, for trying things out and for the tests: what `scripts/cluster` runs."""
