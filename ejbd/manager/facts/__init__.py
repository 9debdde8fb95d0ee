"""Facts: rows, views, the world of a job, memory. Read only."""
