"""The live world: observe, decide, act."""
