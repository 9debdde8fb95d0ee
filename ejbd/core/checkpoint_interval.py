"""How often to checkpoint against lost nodes (Young 1974; Daly, Future Generation Computer Systems 22, 2006).

`cost_s` is what one checkpoint stalls the application, `mtbf_s` the mean time between failures of all the nodes that it
uses together. What comes out is the time from the end of one checkpoint to the beginning of the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def young(cost_s: float, mtbf_s: float) -> float:
    """The first-order optimum: sqrt(2 C M)."""
    return math.sqrt(2.0 * cost_s * mtbf_s)


def daly(cost_s: float, mtbf_s: float) -> float:
    """Daly's higher-order optimum (Eq. 37 there), good also where the cost is no small part of the time between
    failures.

    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for C < 2M, else M.
    """
    if cost_s >= 2.0 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2.0 * mtbf_s)
    return young(cost_s, mtbf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - cost_s


def mtbf_of(nodes: int, node_mtbf_s: float) -> float:
    """The mean time between failures of `nodes` nodes that fail independently of each other."""
    return node_mtbf_s / max(1, nodes)


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """Seconds of computing between two checkpoints against lost nodes (None: there are none), and why."""

    seconds: float | None
    why: str


def checkpoint_interval(
    setting: str | float, by: str, cost_s: float, nodes: int, node_mtbf_s: float
) -> CheckpointInterval:
    """What `setting` (`off`, `auto` or seconds) comes to on `nodes` nodes. `by`: what says so.

    `auto` is Daly's optimum for a checkpoint that costs `cost_s`, and never less than that cost.
    """
    if setting == "off":
        return CheckpointInterval(None, f"no periodic checkpoints: {by} says off")
    if setting != "auto":
        return CheckpointInterval(float(setting), f"every {float(setting):.6g} s: {by} says so")
    mtbf_s = mtbf_of(nodes, node_mtbf_s)
    seconds = max(cost_s, daly(cost_s, mtbf_s))
    why = (
        f"every {seconds:.3g} s ({by} says auto): a checkpoint costs {cost_s:.3g} s, and one of {nodes} "
        f"nodes fails every {mtbf_s:.3g} s"
    )
    return CheckpointInterval(seconds, why)
