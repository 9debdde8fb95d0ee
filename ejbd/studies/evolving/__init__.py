"""Evolving jobs: the evaluation of Klein & Perez (CoreGRID 2011), and what such jobs are worth on logs."""
