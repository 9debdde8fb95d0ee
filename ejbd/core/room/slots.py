"""Slots: what EASY leaves of a cluster, whole units of it, and what is left out of slots that end.

Kernels for both worlds; slots are two vectors, processors and durations (seconds), the longest slot first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ejbd.core.easy import shadow_time
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.progress import ROUNDING_SLACK_S
from ejbd.core.shapes import BackfillSlot

START_UP_POLLS = 3.0  # polls that pass until a subjob's ranks run: it is seen, its workers come, siblings are awaited


class Margins(NamedTuple):
    """Seconds that a live manager keeps free and the paper does not know of.

    `poll_s`: between two looks at the cluster. `start_up_s`: from a subjob's start until its ranks run. `tail_s`: of a
    subjob beyond the lambda that every plan leaves before its end, for the last checkpoint.
    """

    poll_s: float = 0.0
    start_up_s: float = 0.0
    tail_s: float = 0.0


NO_MARGINS = Margins()


def margins_of(poll_s: float, tail_s: float) -> Margins:
    """Those of a manager that looks every `poll_s` seconds, for an application with this tail."""
    return Margins(poll_s, START_UP_POLLS * poll_s, tail_s)


@kernel
def easy_slots(
    head_processors: int,
    ends: Floats,
    freed: Ints,
    due: int,
    free: int,
    now: float,
    slot_processors: Ints,
    slot_durations: Floats,
    unit: int = 1,
) -> int:
    """What may be used under EASY once a pass is over: how many slots are written to the two vectors.

    `head_processors` is what the head of the queue waits for, 0 where none waits; whole units of it are reserved, as in
    :func:`ejbd.core.easy.easy_schedule`. The type-I slot has no end; the type-II slot, which contains it, ends at the
    head's shadow time.
    """
    if free <= 0:
        return 0
    if head_processors == 0:
        slot_processors[0] = free
        slot_durations[0] = math.inf
        return 1
    shadow, extra = shadow_time(head_processors, ends, freed, due, free, now, unit)
    slots = 0
    if min(free, extra) > 0:
        slot_processors[0] = min(free, extra)
        slot_durations[0] = math.inf
        slots = 1
    if free > extra and shadow > now:
        slot_processors[slots] = free
        slot_durations[slots] = shadow - now
        slots += 1
    return slots


@kernel
def in_whole_units(
    processors: Ints, durations: Floats, count: int, unit: int, walltime_quantum_s: float, max_walltime_s: float
) -> int:
    """Cut a staircase, in place, to whole units of processors and of walltime: how many slots are left.

    A queue's walltime limit is a whole duration whatever the quantum: nothing lasts longer.
    """
    kept = 0
    widest = 0
    for index in range(count):
        duration = max_walltime_s
        if durations[index] < max_walltime_s:
            quanta = math.floor((durations[index] + ROUNDING_SLACK_S) / walltime_quantum_s)
            duration = quanta * walltime_quantum_s
        wide = processors[index] // unit * unit
        if duration > 0.0 and wide > widest:
            if kept > 0 and durations[kept - 1] == duration:
                kept -= 1  # as long, and wider
            processors[kept] = wide
            durations[kept] = duration
            kept += 1
            widest = wide
    return kept


@kernel
def not_for_ranks(resumes: bool, margins: Margins) -> float:
    """Seconds of a subjob that no plan counts on: for the last checkpoint beyond lambda; for the start-up of a job
    that has work kept, lest what a suspension has just left look worth coming back to.
    """
    return margins.tail_s + (margins.start_up_s if resumes else 0.0)


@kernel
def left_out(resumes: bool, margins: Margins) -> float:
    """Seconds by which a slot that ends is shown shorter to a policy.

    It is seen by a poll and used a little later: what asks for all of it would end after it.
    """
    return margins.poll_s + not_for_ranks(resumes, margins)


@kernel
def shorten(durations: Floats, count: int, left_out_s: float, max_walltime_s: float, shortened: Floats) -> int:
    """Durations without `left_out_s`, but for slots that have no end: how many slots are left, the first ones."""
    kept = 0
    for index in range(count):
        duration = durations[index]
        if duration < max_walltime_s:
            duration -= left_out_s
        if duration > 0.0:
            shortened[kept] = duration
            kept += 1
    return kept


def usable_slots(
    slots: Iterable[BackfillSlot], resumes: bool, margins: Margins, max_walltime_s: float
) -> tuple[BackfillSlot, ...]:
    """What a policy is shown of a queue's slots. `resumes`: it is asked about a job that waits with work kept."""
    seen = tuple(slots)
    left_out_s = left_out(resumes, margins)
    if left_out_s <= 0.0:
        return seen
    shortened = [0.0] * len(seen)
    count = shorten([slot.duration_s for slot in seen], len(seen), left_out_s, max_walltime_s, shortened)
    return tuple(
        slot if slot.duration_s == duration else BackfillSlot(slot.processors, duration)
        for slot, duration in zip(seen, shortened[:count], strict=False)
    )
