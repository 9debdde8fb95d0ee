"""Turns in the simulated world: which J0s stay in the queue (:mod:`ejbd.core.bundling.turns`).

A J0 that stays counts as wider than the machine, which EASY passes over.
"""

from __future__ import annotations

from ejbd.core.bundling.turns import STAY_AT_MOST, are_later, beyond_s, is_before
from ejbd.core.kernel import kernel
from ejbd.core.shadow import QUEUED as SHADOW_QUEUED
from ejbd.core.shadow import (
    Shadow,
    are_two,
    latest_turn,
    shadow_joins,
    shadow_learns,
    shadow_next,
    shadow_passes,
    shadow_turns_to,
    soonest_turn,
)
from ejbd.sim.world import HEAD, KEPT, NEXT, NOW, QUEUED, RIGID, RUNNING, SEEN, TOTAL, TURNS, WAITING, World


@kernel
def keep_turns(w: World) -> None:
    """Bring the shadow up to now, and let J0s stay or go."""
    if w.count[TURNS] == 0:
        return
    now = w.clock[NOW]
    both = w.shadows
    _bring(w, both.loose, now)
    if are_two(both):
        _bring(w, both.strict, now)
    w.count[SEEN] = w.count[NEXT]
    others_s = 0.0
    elastic_s = 0.0
    for at in range(w.count[QUEUED]):
        job = w.queue[at]
        if w.mode[job] == RIGID:
            others_s += beyond_s(latest_turn(both, job), now)
        elif w.mode[job] == WAITING:
            elastic_s += beyond_s(soonest_turn(both, job), now)
    later = are_later(others_s, elastic_s)
    if not later and w.count[KEPT] == 0:
        return
    if w.count[KEPT] > 0:  # those that go now are ahead of what was the head
        w.count[HEAD] = -1
    kept = 0
    for at in range(w.count[QUEUED]):
        job = w.queue[at]
        stays = later and kept < STAY_AT_MOST and w.mode[job] in (WAITING, RUNNING)
        stays = stays and is_before(soonest_turn(both, job), now)
        w.queue_processors[at] = w.processors[job] + (w.count[TOTAL] if stays else 0)
        kept += 1 if stays else 0
    w.count[KEPT] = kept


@kernel
def _bring(w: World, s: Shadow, now: float) -> None:
    """Up to now, with the jobs that have come since."""
    shadow_turns_to(s, now)
    if w.count[SEEN] == w.count[NEXT]:
        return
    for job in range(w.count[SEEN], w.count[NEXT]):
        shadow_joins(s, job, w.processors[job], w.walltime[job], s.counts[SHADOW_QUEUED])
    shadow_passes(s, now)


@kernel
def turns_learn(w: World, job: int, now: float) -> None:
    """A job has ended."""
    if w.count[TURNS] == 0:
        return
    shadow_learns(w.shadows.loose, job, w.run[job], now)
    if are_two(w.shadows):
        shadow_learns(w.shadows.strict, job, w.run[job], now)


@kernel
def next_turn(w: World) -> float:
    """When the next of those that run in a shadow ends, as far as that is known."""
    time = shadow_next(w.shadows.loose)
    return min(time, shadow_next(w.shadows.strict)) if are_two(w.shadows) else time
