"""How many ranks may share a processor, by their memory: one rule for plans of the daemon and of the simulator.

And what each rank needs of a program that is run on fewer.
"""

from __future__ import annotations

from enum import StrEnum

NONE_FITS = 0


class Memory(StrEnum):
    """What of a program's memory stays as it is where it is run on another number of ranks."""

    RANK = "rank"  # what each rank needs
    WHOLE = "whole"  # what all of them need together: the parts of a domain, say


def each_of(whole: int, width: int) -> int:
    """What each of so many ranks needs of `whole`, rounded up."""
    return -(-whole // max(1, width))


def narrowest(whole: int, most: int) -> int:
    """The fewest ranks of which none needs more than `most`; 1 where there is no such bound (0)."""
    return each_of(whole, most) if most else 1


def ranks_by_memory(rank: int, share: int, node: int, omax: int) -> int:
    """How many ranks, `omax` at most, a place may hold with `share` of its node's memory.

    `rank` is what one rank needs (more than 0) and `node` what its node has, all in one unit. One rank may have more
    than its share, since places of the node can be left idle for it; NONE_FITS: not one fits on the node.
    """
    if rank > node:
        return NONE_FITS
    return max(1, min(omax, share // rank))
