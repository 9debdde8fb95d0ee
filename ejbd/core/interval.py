"""How often to checkpoint against lost nodes (Young 1974; Daly, Future Generation Computer Systems 22, 2006).

`cost_s` is what one checkpoint stalls the application, `mtbf_s` the mean time between failures of all the nodes that it
uses together. What comes out is the time from the end of one checkpoint to the beginning of the next.
"""

from __future__ import annotations

import math


def young(cost_s: float, mtbf_s: float) -> float:
    """The first-order optimum: sqrt(2 C M)."""
    return math.sqrt(2.0 * cost_s * mtbf_s)


def daly(cost_s: float, mtbf_s: float) -> float:
    """Daly's higher-order optimum (his Eq. 37), good also where the cost is no small part of the time between failures.

    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for C < 2M, else M.
    """
    if cost_s >= 2.0 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2.0 * mtbf_s)
    return young(cost_s, mtbf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - cost_s


def mtbf_of(nodes: int, node_mtbf_s: float) -> float:
    """The mean time between failures of `nodes` nodes that fail independently of each other."""
    return node_mtbf_s / max(1, nodes)
