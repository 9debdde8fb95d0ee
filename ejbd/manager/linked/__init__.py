"""Jobs that belong together: arrays, their elements, dependencies."""
