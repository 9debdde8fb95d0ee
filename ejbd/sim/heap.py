"""A binary heap of the next event of each job that runs: by time, then by rank, then in the order of arrival here."""

from __future__ import annotations

from ejbd.core.kernel import kernel
from ejbd.sim.world import HEAPED, SEQUENCE, World

_RANK = 1 << 44


@kernel
def set_event(w: World, job: int, time: float, rank: int) -> None:
    """Make this the job's next event."""
    at = w.heap_at[job]
    if at < 0:
        at = w.count[HEAPED]
        w.count[HEAPED] = at + 1
        w.heap_at[job] = at
    w.heap_job[at] = job
    w.heap_time[at] = time
    w.heap_order[at] = rank * _RANK + w.count[SEQUENCE]
    w.count[SEQUENCE] += 1
    _sift(w, at)


@kernel
def drop_event(w: World, job: int) -> None:
    """Forget the job's next event, if it has one."""
    at = w.heap_at[job]
    if at < 0:
        return
    w.heap_at[job] = -1
    last = w.count[HEAPED] - 1
    w.count[HEAPED] = last
    if at < last:
        _put(w, at, w.heap_time[last], w.heap_order[last], w.heap_job[last])
        _sift(w, at)


@kernel
def rank_of(order: int) -> int:
    """The rank that an entry of `heap_order` was made with."""
    return order // _RANK


@kernel
def _put(w: World, at: int, time: float, order: int, job: int) -> None:
    w.heap_time[at] = time
    w.heap_order[at] = order
    w.heap_job[at] = job
    w.heap_at[job] = at


@kernel
def _before(time: float, order: int, other_time: float, other_order: int) -> bool:
    return time < other_time or (time == other_time and order < other_order)


@kernel
def _sift(w: World, at: int) -> None:
    """Move the entry at `at` up or down to where it belongs."""
    time = w.heap_time[at]
    order = w.heap_order[at]
    job = w.heap_job[at]
    while at > 0:
        above = (at - 1) // 2
        if not _before(time, order, w.heap_time[above], w.heap_order[above]):
            break
        _put(w, at, w.heap_time[above], w.heap_order[above], w.heap_job[above])
        at = above
    size = w.count[HEAPED]
    below = 2 * at + 1
    while below < size:
        if below + 1 < size and _before(
            w.heap_time[below + 1], w.heap_order[below + 1], w.heap_time[below], w.heap_order[below]
        ):
            below += 1
        if not _before(w.heap_time[below], w.heap_order[below], time, order):
            break
        _put(w, at, w.heap_time[below], w.heap_order[below], w.heap_job[below])
        at = below
        below = 2 * at + 1
    _put(w, at, time, order, job)
