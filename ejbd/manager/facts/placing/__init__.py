"""Where ranks can be placed, and what an application needs for it."""
