"""A queue where elastic jobs have lately ended later than J0 could hope to: it stops making jobs elastic for a while.

A decision is right for its own job by what is known of it. That what is decided pays, all jobs together, is seen only
once they have ended. So the ends of elastic jobs are set beside what J0 could hope for when they came: its planned
start, and the job's work at full width from then on. Starts are planned by requests, and most jobs end long before
theirs. So of the wait that was promised only as much counts as jobs here have lately used of their requests. Where most
of the latest ended later, no further job is made elastic, and none that waits is started early. After a while the queue
tries again, and has to be late anew before it stops again: then for twice as long.

Kernels for both worlds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ejbd.core.freespace import earliest_fit, occupy, planned_releases
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.lasting import FEWEST_RUNS, KEEPS

FEWEST_ENDS = 20  # of elastic jobs, since the queue began or tried again
LATE_PART = 2.0 / 3.0  # of the newest have to have been late (:data:`ejbd.core.shortruns.NEWEST_RUNS` of them count)
LATE_BY_S = 1.0  # clocks tell whole seconds
FIRST_STOP_S, LONGEST_STOP_S = 3600.0, 8 * 3600.0


@kernel
def is_later(end_s: float, submit_s: float, promised_start_s: float, part: float, work_s: float) -> bool:
    """Whether a job ended later than on its J0, with so much work at full width (times absolute, in seconds).

    `part` of the wait that J0 was promised is what it could hope for.
    """
    return end_s > submit_s + part * max(0.0, promised_start_s - submit_s) + work_s + LATE_BY_S


@kernel
def with_one_more(sum_s: float, processors: int, seconds: float) -> float:
    """Processor-seconds of the latest runs, used or requested, with one more of them."""
    return sum_s * KEEPS + processors * seconds


def used_part(runs: Iterable[tuple[int, float, float]]) -> float:
    """Of runs, (processors, seconds used, seconds requested) in the order of their ends, the part that was used."""
    used = asked = 0.0
    count = 0
    for processors, used_s, asked_s in runs:
        used, asked = with_one_more(used, processors, used_s), with_one_more(asked, processors, max(used_s, asked_s))
        count += 1
    return used / asked if count >= FEWEST_RUNS and asked > 0.0 else 1.0


@kernel
def loses(ends: int, late: int) -> bool:
    """Whether a queue stops: so many of its newest ends of elastic jobs were late."""
    return ends >= FEWEST_ENDS and late >= LATE_PART * ends


@kernel
def stop_s(stops: int) -> float:
    """For how long it stops, where it has stopped so many times before without a good spell between."""
    return min(LONGEST_STOP_S, FIRST_STOP_S * 2.0 ** min(stops, 8))


@kernel
def promised_start(
    processors: Ints,
    walltimes: Floats,
    count: int,
    ends: Floats,
    freed: Ints,
    due: int,
    free: int,
    now: float,
    times: Floats,
    levels: Ints,
) -> float:
    """When the last of `count` waiting jobs is to start, if each is planned at the earliest without moving one before.

    The first `due` of `ends` and `freed` are the planned releases in order of time. `times` and `levels` are room for
    the profile: one entry more than `due` and twice `count` together. A planner that is asked for a start says this.
    """
    steps = planned_releases(ends, freed, due, free, now, times, levels)
    start = math.inf
    for index in range(count):
        start = earliest_fit(times, levels, steps, now, walltimes[index], processors[index])
        if start < math.inf:
            steps = occupy(times, levels, steps, start, start + walltimes[index], processors[index])
    return start
