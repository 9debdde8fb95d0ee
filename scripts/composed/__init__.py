"""What `scripts/compose-test` does. Standard library only: it runs before `scripts/setup` has."""
