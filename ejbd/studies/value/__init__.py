"""What elastic jobs would have been worth on a centre's own log: docs/value.md is made of it."""
