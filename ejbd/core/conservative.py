"""Conservative backfilling as a pure scheduler (Mu'alem & Feitelson, TPDS 2001): every waiting job has a reservation.

A new job is reserved the earliest time at which it fits for all of its walltime without moving any other. At every pass
the reservations are compressed in the order of the queue: each waiting job in turn is taken out of the profile and put
back at the earliest time at which it fits, which is never later than before. A job starts when its reservation is due.
"""

from __future__ import annotations

import math

from ejbd.core.freespace import earliest_fit, occupy, planned_releases
from ejbd.core.kernel import Floats, Ints, kernel


@kernel
def conservative_schedule(
    processors: Ints,
    walltimes: Floats,
    reserved: Floats,
    count: int,
    ends: Floats,
    freed: Ints,
    due: int,
    free: int,
    now: float,
    times: Floats,
    levels: Ints,
    started: Ints,
) -> int:
    """One pass: how many of the queue's first `count` jobs start now; their indices go to `started`.

    `reserved` holds each job's reservation from the pass before, infinite for a new one, and is brought up to date. The
    first `due` of `ends` and `freed` are the planned releases in order of time. `times` and `levels` are room for the
    profile: one entry more than `due` and twice `count` together.
    """
    steps = planned_releases(ends, freed, due, free, now, times, levels)
    for index in range(count):
        if reserved[index] < math.inf:
            end = reserved[index] + walltimes[index]
            steps = occupy(times, levels, steps, reserved[index], end, processors[index])
    starts = 0
    for index in range(count):
        if reserved[index] > now:
            if reserved[index] < math.inf:
                end = reserved[index] + walltimes[index]
                steps = occupy(times, levels, steps, reserved[index], end, -processors[index])
            reserved[index] = earliest_fit(times, levels, steps, now, walltimes[index], processors[index])
            if reserved[index] < math.inf:
                end = reserved[index] + walltimes[index]
                steps = occupy(times, levels, steps, reserved[index], end, processors[index])
        if reserved[index] <= now:
            started[starts] = index
            starts += 1
    return starts
