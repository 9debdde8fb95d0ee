"""Turns in the simulated world: which J0s stay in the queue (:mod:`ejbd.core.bundling.turns`).

A J0 that stays counts as wider than the machine, which EASY passes over.
"""

from __future__ import annotations

from ejbd.core.bundling.turns import STAY_AT_MOST, are_later, beyond_s, is_before
from ejbd.core.kernel import kernel
from ejbd.core.shadow import QUEUED as SHADOW_QUEUED
from ejbd.core.shadow import shadow_joins, shadow_passes, shadow_turns_to
from ejbd.sim.world import HEAD, KEPT, NEXT, NOW, QUEUED, RIGID, RUNNING, SEEN, TOTAL, TURNS, WAITING, World


@kernel
def keep_turns(w: World) -> None:
    """Bring the shadow up to now, and let J0s stay or go."""
    if w.count[TURNS] == 0:
        return
    now = w.clock[NOW]
    shadow_turns_to(w.shadow, now)
    if w.count[SEEN] < w.count[NEXT]:
        while w.count[SEEN] < w.count[NEXT]:
            job = w.count[SEEN]
            w.count[SEEN] += 1
            shadow_joins(w.shadow, job, w.processors[job], w.walltime[job], w.shadow.counts[SHADOW_QUEUED])
        shadow_passes(w.shadow, now)
    others_s = 0.0
    elastic_s = 0.0
    for at in range(w.count[QUEUED]):
        job = w.queue[at]
        if w.mode[job] == RIGID:
            others_s += beyond_s(w.shadow.start[job], now)
        elif w.mode[job] == WAITING:
            elastic_s += beyond_s(w.shadow.start[job], now)
    later = are_later(others_s, elastic_s)
    if not later and w.count[KEPT] == 0:
        return
    if w.count[KEPT] > 0:  # those that go now are ahead of what was the head
        w.count[HEAD] = -1
    kept = 0
    for at in range(w.count[QUEUED]):
        job = w.queue[at]
        stays = later and kept < STAY_AT_MOST and w.mode[job] in (WAITING, RUNNING)
        stays = stays and is_before(w.shadow.start[job], now)
        w.queue_processors[at] = w.processors[job] + (w.count[TOTAL] if stays else 0)
        kept += 1 if stays else 0
    w.count[KEPT] = kept
