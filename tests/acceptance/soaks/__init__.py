"""The parts of the soak (`tests/acceptance/soak.py`): its jobs, its faults, the batch system's word, the reckoning."""
