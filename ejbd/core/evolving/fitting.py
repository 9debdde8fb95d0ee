"""`fit` (Klein & Perez 2011, Algorithm 2) and compacting: where in the free space a profile completes earliest.

A step may be held open until the next one can begin, for at most `limit` times its duration in all; the first step is
delayed and never held. Written without recursion: what a step hands back to the one before it is the earliest start
that is left to that one, and such a bound never falls. So every failure is seen once, whatever the number of steps.
Times are whole seconds, with which it is exact.

Misprints of the paper's Algorithm 2, as they are read here: line 9 computes the earliest start of the step *before*;
line 13 hands back the end of the last step that is in the way; line 17 is for every step but the first.
"""

from __future__ import annotations

import math

from ejbd.core.freespace import earliest_fit, first_obstacle, last_obstacle, latest_fit
from ejbd.core.kernel import Floats, Ints, kernel


@kernel
def fit_steps(
    times: Floats,
    levels: Ints,
    count: int,
    durations: Floats,
    widths: Ints,
    first: int,
    steps: int,
    begin: float,
    limit: float,
    starts: Floats,
    bounds: Floats,
) -> float:
    """The earliest completion of `steps` steps from number `first` on; infinite where they never fit.

    `times`, `levels`, `count`: the free space (`ejbd.core.freespace`). The start of each step is written to `starts`,
    at the step's own place; `bounds` is room for as many. No step begins before `begin`.
    """
    for at in range(first, first + steps):
        bounds[at] = begin
    last = first + steps
    at = first
    while at < last:
        earliest = starts[at - 1] + durations[at - 1] if at > first else begin
        bound = bounds[at]
        if bound < earliest:
            bound = earliest
        start = earliest_fit(times, levels, count, bound, durations[at], widths[at])
        if start == math.inf:
            return math.inf
        bounds[at] = start
        if at > first and start > earliest:
            back = start - longest(durations[at - 1], limit)
            if back <= starts[at - 1]:
                back = last_obstacle(times, levels, count, earliest, start, widths[at - 1])
            if back > starts[at - 1]:
                bounds[at - 1] = back
                at -= 1
                continue
        starts[at] = start
        at += 1
    if steps > 1:
        starts[first] = max(starts[first], starts[first + 1] - durations[first])
    return starts[last - 1] + durations[last - 1]


@kernel
def compact_steps(
    times: Floats,
    levels: Ints,
    count: int,
    durations: Floats,
    widths: Ints,
    first: int,
    steps: int,
    limit: float,
    starts: Floats,
    late: Floats,
    bounds: Floats,
) -> bool:
    """Put every step as late as the completion that :func:`fit_steps` found allows, from the last to the first.

    Algorithm 2 mirrored (the paper's section 4.2 sketches it). `starts` has the solution of the fit; `late` gets one of
    the same completion that starts no earlier and holds least. False where rounding of times that are no whole seconds
    is in the way: then `late` means nothing.
    """
    last = first + steps - 1
    for at in range(first, last):
        bounds[at] = math.inf
    late[last] = starts[last]
    at = last - 1
    while at >= first:
        latest = late[at + 1]
        latest_end = min(latest, bounds[at] + durations[at])
        end = latest_fit(times, levels, count, latest_end, durations[at], widths[at])
        start = min(end - durations[at], bounds[at])
        if start < starts[first]:
            return False
        bounds[at] = start
        if end < latest:
            most = end
            if at > first:
                most = start + longest(durations[at], limit)
            if most >= latest:
                most = first_obstacle(times, levels, count, end, latest, widths[at])
            if most < latest:
                at += 1
                if at == last:
                    return False
                bounds[at] = most
                continue
        late[at] = start
        at -= 1
    return True


@kernel
def longest(duration_s: float, limit: float) -> float:
    """How long a step may be held open in all: whole seconds, by which nothing is rounded on the way."""
    if limit == math.inf:
        return math.inf
    return float(math.floor(limit * duration_s))
