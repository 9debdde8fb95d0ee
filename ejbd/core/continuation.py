"""A job that is longer than its queue's limit, as a chain of place holders: how long each of them is asked for.

All but the last end with a checkpoint, from which the next one goes on (E-HPC, Fox et al. 2017, section 4.3: what
reaches its time limit is checkpointed, and pending with what is left).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """One place holder: `length_s` for ranks, and up to `slack_s` more behind it for a last checkpoint (seconds)."""

    length_s: float
    slack_s: float
    last: bool


def next_link(left_s: float, limit_s: float, restart_s: float, tail_s: float) -> Link:
    """The place holder for `left_s` seconds of work, where none may be longer than `limit_s`.

    `restart_s`: what is lost to the restart at its beginning, `tail_s` to the checkpoint at its end. The last one is
    asked for as any job's is, with as much of `tail_s` as there is room for.
    """
    length_s = left_s + restart_s
    if length_s <= limit_s:
        return Link(length_s, min(tail_s, limit_s - length_s), True)
    return Link(limit_s, 0.0, False)


def links(work_s: float, limit_s: float, restart_s: float, tail_s: float) -> int | None:
    """How many place holders such a job takes where all goes well; None: it would get nowhere."""
    if work_s <= limit_s:
        return 1
    each_s = limit_s - restart_s - tail_s
    if each_s <= 0.0:
        return None
    rest_s = work_s - (limit_s - tail_s)  # the first one restarts nothing
    whole = max(0, math.ceil((rest_s - (limit_s - restart_s)) / each_s))
    return whole + 2
