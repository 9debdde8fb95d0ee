"""Evolving jobs (Klein & Perez, CoreGRID 2011): widths that are known ahead, fitted into the space that is free."""
