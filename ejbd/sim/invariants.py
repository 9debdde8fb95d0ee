"""What must hold after every event, looked at when a simulation is told to check itself.

Three things are looked at always, where they happen. An application is complete at its end. No decision makes an
expected completion later. No job gives back what it does not hold.
"""

from __future__ import annotations

from ejbd.core.bundling.parameters import Rules
from ejbd.core.bundling.rungs import widest
from ejbd.core.easy import shadow_time
from ejbd.core.kernel import kernel
from ejbd.core.progress import whole_units
from ejbd.sim.cluster import EASY, EJB, head_at
from ejbd.sim.elastic import held_processors
from ejbd.sim.world import (
    BROKEN_PROGRESS,
    DUE,
    FAULT,
    FREE,
    HEAD,
    HEAD_DELAYED,
    KILLED,
    NOW,
    OUT_OF_MEMORY,
    OVERCOMMITTED,
    RUNNING,
    SHADOW,
    TOO_WIDE,
    TOTAL,
    VISITS,
    World,
)

_SLACK = 1e-6


@kernel
def check(w: World, policy: int, rules: Rules) -> None:
    """Note an invariant that does not hold as the world's fault."""
    busy = 0
    for index in range(w.count[DUE]):
        busy += w.freed[index]
        if index > 0 and w.ends[index] < w.ends[index - 1]:
            w.count[FAULT] = OVERCOMMITTED
    if w.count[FREE] < 0 or busy + w.count[FREE] != w.count[TOTAL]:
        w.count[FAULT] = OVERCOMMITTED
    if policy in (EASY, EJB):
        _check_head(w)
    now = w.clock[NOW]
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        if (
            w.work[job] > w.run[job] + max(1.0, rules.beyond) + _SLACK
        ):  # the last whole second may not be needed in full
            w.count[FAULT] = BROKEN_PROGRESS
        if held_processors(w, job) > whole_units(widest(w.processors[job], rules), rules.processor_quantum):
            w.count[FAULT] = TOO_WIDE
        if w.row[job] >= 0 and w.held_count[job] > 0 and w.held.ends[w.row[job]][0] < now - _SLACK:
            w.count[FAULT] = KILLED
        if w.mode[job] == RUNNING and held_processors(w, job) * w.most_ranks[job] < w.processors[job]:
            w.count[FAULT] = OUT_OF_MEMORY


@kernel
def _check_head(w: World) -> None:
    """The head of the queue keeps its shadow time, or gets an earlier one."""
    at = head_at(w)
    if at < 0:
        w.count[HEAD] = -1
        return
    now = w.clock[NOW]
    shadow, _ = shadow_time(w.queue_processors[at], w.ends, w.freed, w.count[DUE], w.count[FREE], now)
    if w.count[HEAD] == w.queue[at] and shadow > w.clock[SHADOW]:
        w.count[FAULT] = HEAD_DELAYED
    w.count[HEAD] = w.queue[at]
    w.clock[SHADOW] = shadow
