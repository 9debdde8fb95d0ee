"""Turns: no elastic job starts in its own shape before its turn while another waits beyond its own.

A job's turn is when it starts in the shadow, which is plain EASY (:mod:`ejbd.core.shadow`). Where elastic jobs make
the machine drain sooner than under EASY, the widest of those that wait start sooner, too, and a burst of short jobs
that under EASY had gone ahead of them waits behind them. So while a job waits though its turn has come, J0s whose turn
has not stay in the queue, and hold up none. EASY goes on with the others, and elastic jobs go on borrowing. A J0 stays
no longer than until its turn.

Kernels for both worlds.
"""

from __future__ import annotations

from ejbd.core.kernel import kernel

BEYOND_S = 60.0  # and one lambda: so long a job may wait beyond its turn before any J0 stays


@kernel
def waits_beyond(turn_s: float, now: float, lambda_s: float) -> bool:
    """Whether a job that waits should have started by now (its turn is infinite: that has not come)."""
    return turn_s + BEYOND_S + lambda_s < now


@kernel
def is_before(turn_s: float, now: float) -> bool:
    """Whether a J0 stays as long as there is such a job."""
    return turn_s > now
