"""Limits that begin at what a run is thought to take, and are raised to the request before they are over: `raised`.

The plan is the mean of the user's last two runs (Tsafrir, Etsion and Feitelson). What outlives it is given all of its
request at once: small steps lost in every log that was played.
"""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.core.progress import round_up

LAST = 2  # runs of the user that count
AHEAD_S = (
    60.0  # of its end a limit is raised, beside the looks of the daemon: batch systems look at limits once a minute
)
AHEAD_POLLS = 4.0
WORTH = 2.0  # the plan is so many times as long as that, or the request is kept


def ahead_s(poll_s: float) -> float:
    """How long before its end a limit has to be raised at the latest (seconds)."""
    return AHEAD_S + AHEAD_POLLS * poll_s


def planned_s(runs: Sequence[float], request_s: float, quantum_s: float, poll_s: float) -> float | None:
    """What to plan a job with, by the last runs of its user (seconds); None: its request."""
    if len(runs) < LAST:
        return None
    first_s = round_up(max(sum(runs[:LAST]) / LAST, WORTH * ahead_s(poll_s)), quantum_s)
    return first_s if first_s < request_s else None
