"""The experiments of Gainaru et al. (ICPP 2019) on speculative scheduling: docs/speculation.md has what they show.

`sequences` answers `ejb history sequence`: which walltimes are the best for a law.
"""
