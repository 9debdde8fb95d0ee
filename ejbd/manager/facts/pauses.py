"""How long to wait after failures in a row: the one ladder of pauses."""

from __future__ import annotations

PAUSES_S = (1.0, 5.0, 15.0, 60.0, 300.0)
"""The one ladder of pauses. Each further failure in a row climbs a rung, up to the last one."""


PLACEMENT_PAUSE_S = 30.0  # the longest before another placement: it holds its processors meanwhile


PLACEHOLDER_PAUSE_S = 5.0  # the first before a lost J0 is submitted again, which was once at no pause


QUEUE_PAUSE_S = 15.0  # the first of a queue that keeps failing


SUBMISSION_PAUSE_S = 60.0  # the longest without one trial submission: no job waits longer than that for its place


def pause_s(failures: int, *, free: int = 0, first_s: float = 0.0, most_s: float = PAUSES_S[-1]) -> float:
    """How long to wait after so many failures in a row (seconds).

    The first `free` of them cost nothing. Then comes a pause of `first_s` (where that is more than the lowest rung).
    With each further failure comes the next rung of :data:`PAUSES_S` above it. No pause is longer than `most_s`, unless
    `first_s` itself is.
    """
    paying = failures - free
    if paying <= 0:
        return 0.0
    rungs = [max(first_s, PAUSES_S[0]), *(rung for rung in PAUSES_S[1:] if rung > first_s)]
    return min(rungs[min(paying, len(rungs)) - 1], max(most_s, first_s))


def placement_pause_s(setbacks: int) -> float:
    """How long before the next placement where the last one failed before it ran: its cause may pass (a full disk)."""
    return pause_s(setbacks, free=1, most_s=PLACEMENT_PAUSE_S)


def move_pause_s(move_s: float) -> float:
    """How long before another move where a checkpoint failed and all ranks run on; `move_s`: what a move costs."""
    return pause_s(1, first_s=max(10.0, move_s))
