"""Turns: no elastic job starts on its J0 before its turn while one that is not elastic waits beyond its own.

A job's turn is when it starts in the shadow, which is plain EASY (:mod:`ejbd.core.shadow`). Where elastic jobs make
the machine drain sooner than under EASY, the widest of those that wait start sooner, too, and a burst of short jobs
that under EASY had gone ahead of them waits behind them. So while a job that is not elastic waits though its
turn has come, J0s that are before theirs stay in the queue, and hold up none. EASY goes on with the others, and elastic
jobs go on borrowing. A J0 stays no longer than until its turn. Elastic jobs that wait beyond theirs make none stay:
they can borrow. Where they counted, too, all jobs lost more on the logs that this was chosen on.

Kernels for both worlds.
"""

from __future__ import annotations

from ejbd.core.kernel import kernel

BEYOND_S = 60.0  # so long a job may wait beyond its turn before any J0 stays
STAY_AT_MOST = 100  # J0s, from the head of the queue on: each costs the batch system a command to stay, and one to go
TOLD = "J0 waits for its turn: without elasticity it would not have started yet, and another job waits beyond its own"


@kernel
def waits_beyond(turn_s: float, now: float) -> bool:
    """Whether a job that waits, and is not elastic, should have started by now; infinite: its turn has not come."""
    return turn_s + BEYOND_S < now


@kernel
def is_before(turn_s: float, now: float) -> bool:
    """Whether a J0 stays as long as there is such a job."""
    return turn_s > now
