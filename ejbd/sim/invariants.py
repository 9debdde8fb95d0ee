"""What must hold after every event, looked at when a simulation is told to check itself."""

from __future__ import annotations

from ejbd.core.kernel import kernel
from ejbd.core.plan import Rules
from ejbd.sim.elastic import held_processors
from ejbd.sim.world import (
    DUE,
    FAULT,
    FREE,
    KILLED,
    NOW,
    OVERCOMMITTED,
    TOO_WIDE,
    TOTAL,
    VISITS,
    World,
)

_SLACK = 1e-6


@kernel
def check(w: World, policy: int, rules: Rules) -> None:
    """Note the first invariant that does not hold as the world's fault."""
    busy = 0
    for index in range(w.count[DUE]):
        busy += w.freed[index]
        if index > 0 and w.ends[index] < w.ends[index - 1]:
            w.count[FAULT] = OVERCOMMITTED
    if w.count[FREE] < 0 or busy + w.count[FREE] != w.count[TOTAL]:
        w.count[FAULT] = OVERCOMMITTED
    now = w.clock[NOW]
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        if w.work[job] > w.run[job] + 1.0 + _SLACK:
            w.count[FAULT] = TOO_WIDE
        if held_processors(w, job) > w.processors[job] * rules.processor_quantum:
            w.count[FAULT] = TOO_WIDE
        if w.row[job] >= 0 and w.held_count[job] > 0 and w.held.ends[w.row[job]][0] < now - _SLACK:
            w.count[FAULT] = KILLED
