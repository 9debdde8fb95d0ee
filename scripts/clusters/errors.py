"""What a cluster that cannot be had says."""

from __future__ import annotations


class ClusterError(Exception):
    """One sentence for the person at the terminal, and an exit code."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code
