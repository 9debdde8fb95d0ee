"""Turns: no elastic job starts on its J0 before its turn while the others are later than elastic jobs are.

A job's turn is when it starts in the shadow, which is plain EASY (:mod:`ejbd.core.shadow`). By two shadows it is the
later start of a job that is not elastic, and the sooner one of an elastic job: in doubt J0s go. Where elastic jobs make
the machine drain sooner than under EASY, the widest of those that wait start sooner, too, and a burst of short jobs
that under EASY had gone ahead of them waits behind them. So while jobs that are not elastic wait though their turn has
come, J0s that are before theirs stay in the queue, and hold up none. EASY goes on with the others, and elastic jobs go
on borrowing. A J0 stays no longer than until its turn.

What stays has no room kept for it, and may come late itself. So none stays where the elastic jobs that hold nothing are
later than the others: the seconds since their turns count, of all of them together. Without this elastic jobs lost
most where moves are long, and little is borrowed.

Kernels for both worlds.
"""

from __future__ import annotations

from ejbd.core.kernel import kernel

BEYOND_S = 60.0  # so long a job may wait beyond its turn before that counts
STAY_AT_MOST = 100  # J0s, from the head of the queue on: each costs the batch system a command to stay, and one to go
TOLD = "J0 waits for its turn: without elasticity it would not have started yet, and others wait beyond theirs"


@kernel
def beyond_s(turn_s: float, now: float) -> float:
    """For how long a job that waits should have run by now; infinite: its turn has not come."""
    return now - turn_s if turn_s + BEYOND_S < now else 0.0


@kernel
def are_later(others_s: float, elastic_s: float) -> bool:
    """Whether J0s stay: the seconds beyond their turns of those that are not elastic, and of elastic ones that hold
    nothing."""
    return others_s > elastic_s


@kernel
def is_before(turn_s: float, now: float) -> bool:
    """Whether a J0 is one of those that stay then."""
    return turn_s > now
