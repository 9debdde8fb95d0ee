"""How many processors are free from when on: the profile that conservative backfilling and evolving jobs plan on.

A profile is two vectors, of which the first `steps` entries count: `levels[i]` processors are free from `times[i]` to
`times[i + 1]`, those of the last entry for ever. Before `times[0]` nothing is planned. Times are seconds.
"""

from __future__ import annotations

import math

from ejbd.core.kernel import Floats, Ints, kernel


@kernel
def planned_releases(ends: Floats, freed: Ints, due: int, free: int, now: float, times: Floats, levels: Ints) -> int:
    """Make the profile of what runs; its number of steps, which is `due` and one at most.

    `free` processors are free from `now` on. The first `due` of `ends` and `freed` are releases in order of time.
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
    return steps


@kernel
def place(times: Floats, steps: int, time: float) -> int:
    """The step that `time` lies in; the first for what comes before the profile."""
    low = 0
    high = steps
    while high - low > 1:
        middle = (low + high) // 2
        if times[middle] <= time:
            low = middle
        else:
            high = middle
    return low


@kernel
def earliest_fit(times: Floats, levels: Ints, steps: int, earliest: float, duration_s: float, processors: int) -> float:
    """When `processors` are free for the whole duration: `earliest`, or the first step after it; infinite if never.

    A duration is above 0.
    """
    begin = earliest
    if begin < times[0]:
        begin = times[0]
    at = place(times, steps, begin)
    end = begin + duration_s
    while True:
        enough = levels[at] >= processors
        at += 1
        if at == steps:
            return begin if enough else math.inf
        if not enough:
            begin = times[at]
            end = begin + duration_s
        elif times[at] >= end:
            return begin


@kernel
def latest_fit(times: Floats, levels: Ints, steps: int, latest: float, duration_s: float, processors: int) -> float:
    """The latest end of such a stretch, which is `latest` or the start of a step; minus infinity if there is none."""
    end = latest
    while end - duration_s >= times[0]:
        at = place(times, steps, end)
        if times[at] == end and at > 0:
            at -= 1  # a step that begins at the end is not in the stretch
        while levels[at] >= processors and times[at] > end - duration_s:
            at -= 1
        if levels[at] >= processors:
            return end
        end = times[at]
    return -math.inf


@kernel
def last_obstacle(times: Floats, levels: Ints, steps: int, begin: float, end: float, processors: int) -> float:
    """When the last step in between that has too few processors is over; minus infinity where every one has enough."""
    if end <= begin:
        return -math.inf
    at = place(times, steps, end)
    if times[at] >= end:
        at -= 1
    while at >= 0:
        if levels[at] < processors:
            return times[at + 1] if at + 1 < steps else math.inf
        if times[at] <= begin:
            break
        at -= 1
    return -math.inf


@kernel
def first_obstacle(times: Floats, levels: Ints, steps: int, begin: float, end: float, processors: int) -> float:
    """When the first step in between that has too few processors begins; infinite where every one has enough."""
    if end <= begin:
        return math.inf
    at = place(times, steps, begin)
    while at < steps and times[at] < end:
        if levels[at] < processors:
            return times[at]
        at += 1
    return math.inf


@kernel
def occupy(times: Floats, levels: Ints, steps: int, begin: float, end: float, processors: int) -> int:
    """Take `processors` (negative: give them back) from `begin` to `end`; the new number of steps.

    Steps that no longer differ from the one before are joined, or the profile would only grow. The vectors need room
    for two steps more.
    """
    first = place(times, steps, begin)
    if end <= times[first]:
        return steps  # before the profile: nothing is planned there
    last = first
    while last + 1 < steps and times[last + 1] < end:
        last += 1
    head = 1 if times[first] < begin else 0  # a step is to begin where nothing began, and another one where it ends
    tail = 1 if end < math.inf and (last + 1 == steps or times[last + 1] > end) else 0
    at = steps - 1
    if head + tail > 0:
        while at > last:
            times[at + head + tail] = times[at]
            levels[at + head + tail] = levels[at]
            at -= 1
    if tail > 0:
        times[last + head + 1] = end
        levels[last + head + 1] = levels[last]
    while at > first and head > 0:
        times[at + 1] = times[at]
        levels[at + 1] = levels[at]
        at -= 1
    if head > 0:
        times[first + 1] = begin
        levels[first + 1] = levels[first]
    first += head
    last += head
    for at in range(first, last + 1):
        levels[at] -= processors
    steps += head + tail
    if last + 1 < steps and levels[last + 1] == levels[last]:
        steps = _join(times, levels, steps, last + 1)
    if first > 0 and levels[first] == levels[first - 1]:
        steps = _join(times, levels, steps, first)
    return steps


@kernel
def _join(times: Floats, levels: Ints, steps: int, at: int) -> int:
    """Make one step of this one and the one before it, which are alike; the new number of steps."""
    while at + 1 < steps:
        times[at] = times[at + 1]
        levels[at] = levels[at + 1]
        at += 1
    return steps - 1
