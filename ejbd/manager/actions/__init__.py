"""Intents and who carries them out: the only place that acts on the batch system."""
