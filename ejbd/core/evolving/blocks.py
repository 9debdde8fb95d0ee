"""What an evolving job holds, as batch jobs: the part that all steps have in common, and one more for each increment.

A block is held through steps that follow each other; each but the first stands on the one below it. So an increment is
the beginning of a block, and a decrement the end of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """So many processors from the step `first` to the step `last`, both included, counted from 0."""

    first: int
    last: int
    processors: int


def blocks(widths: Sequence[int]) -> tuple[Block, ...]:
    """The blocks of steps of these widths, the one that lasts through all of them first, then by their beginnings."""
    found: list[Block] = []
    open_blocks: list[tuple[int, int]] = []  # (step that it began with, the width up to which it reaches)
    for at, width in enumerate([*widths, 0]):
        began = at
        while open_blocks and open_blocks[-1][1] > width:
            began, top = open_blocks.pop()
            below = open_blocks[-1][1] if open_blocks else 0
            found.append(Block(began, at - 1, top - max(below, width)))
            if below < width:
                break
        if width and (not open_blocks or open_blocks[-1][1] < width):
            open_blocks.append((began, width))
    return tuple(sorted(found, key=lambda block: (block.first, -block.last)))
