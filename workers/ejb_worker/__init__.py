"""The worker: one a node inside each subjob. Standard library only, Python >= 3.8 (docs/worker-protocol.md)."""

PROTOCOL = 2
