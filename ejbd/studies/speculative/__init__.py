"""The experiments of Gainaru et al. (ICPP 2019) on speculative scheduling: docs/speculation.md has what they show."""
