"""An application on its processors: launched, checkpointed, moved, brought back."""
