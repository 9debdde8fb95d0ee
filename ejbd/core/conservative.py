"""Conservative backfilling as a pure scheduler (Mu'alem & Feitelson, TPDS 2001): every waiting job has a reservation.

A new job is reserved the earliest time at which it fits for all of its walltime without moving anybody. At every pass
the reservations are compressed in the order of the queue: each waiting job in turn is taken out of the profile and put
back at the earliest time at which it fits, which is never later than before. A job starts when its reservation is due.
"""

from __future__ import annotations

import math

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
    times[0] = now
    levels[0] = free
    steps = 1
    for index in range(due):
        if ends[index] > times[steps - 1]:
            times[steps] = ends[index]
            levels[steps] = levels[steps - 1]
            steps += 1
        levels[steps - 1] += freed[index]
    for index in range(count):
        if reserved[index] < math.inf:
            steps = _occupy(times, levels, steps, reserved[index], walltimes[index], processors[index])
    starts = 0
    for index in range(count):
        if reserved[index] > now:
            if reserved[index] < math.inf:
                steps = _occupy(times, levels, steps, reserved[index], walltimes[index], -processors[index])
            reserved[index] = earliest_fit(times, levels, steps, walltimes[index], processors[index])
            if reserved[index] < math.inf:
                steps = _occupy(times, levels, steps, reserved[index], walltimes[index], processors[index])
        if reserved[index] <= now:
            started[starts] = index
            starts += 1
    return starts


@kernel
def earliest_fit(times: Floats, levels: Ints, steps: int, walltime_s: float, processors: int) -> float:
    """The earliest step of the profile from which `processors` are free for the whole walltime; infinite if none."""
    at = 0
    while at < steps:
        begin = times[at]
        probe = at
        while probe < steps and times[probe] < begin + walltime_s and levels[probe] >= processors:
            probe += 1
        if probe == steps or times[probe] >= begin + walltime_s:
            return begin
        at = probe + 1
    return math.inf


@kernel
def _occupy(times: Floats, levels: Ints, steps: int, begin: float, walltime_s: float, processors: int) -> int:
    """Take `processors` (negative: give them back) from `begin` for the walltime; the new number of steps."""
    end = begin + walltime_s
    steps = _split(times, levels, steps, begin)
    steps = _split(times, levels, steps, end)
    at = steps - 1
    while at >= 0 and times[at] >= begin:
        if times[at] < end:
            levels[at] -= processors
        at -= 1
    at = 1  # steps that no longer differ from the one before are joined, or the profile would only grow
    kept = 1
    while at < steps:
        if levels[at] != levels[kept - 1]:
            times[kept] = times[at]
            levels[kept] = levels[at]
            kept += 1
        at += 1
    return kept


@kernel
def _split(times: Floats, levels: Ints, steps: int, time: float) -> int:
    """Make sure that the profile has a step at `time`; the new number of steps."""
    at = steps
    while at > 0 and times[at - 1] > time:
        at -= 1
    if at > 0 and times[at - 1] == time:
        return steps
    if at == 0:
        return steps  # before the profile: nothing is planned there
    place = steps
    while place > at:
        times[place] = times[place - 1]
        levels[place] = levels[place - 1]
        place -= 1
    times[at] = time
    levels[at] = levels[at - 1]
    return steps + 1
