"""How many ranks may share a processor, by their memory: one rule for plans of the daemon and of the simulator."""

from __future__ import annotations

NONE_FITS = 0


def ranks_by_memory(rank: int, share: int, node: int, omax: int) -> int:
    """How many ranks, `omax` at most, a place may hold with `share` of its node's memory.

    `rank` is what one rank needs (more than 0) and `node` what its node has, all in one unit. One rank may have more
    than its share, since places of the node can be left idle for it; NONE_FITS: not one fits on the node.
    """
    if rank > node:
        return NONE_FITS
    return max(1, min(omax, share // rank))
