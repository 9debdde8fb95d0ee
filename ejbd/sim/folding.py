"""Bundling with in-place folding, simulated: room is given back without a checkpoint, and taken again without a move.

Folding is onto half of each subjob's processors, in place: it costs no lambda, and what it frees is free at once.
Which jobs give is chosen as the guard chooses (:func:`ejbd.core.bundling.guard.give_back`). Where folding does not give
a waiting job what it needs, the guard checkpoints. Which nodes the processors are on is not simulated.
"""

from __future__ import annotations

from ejbd.core.bundling.guard import LOOKED_AT, may_fold
from ejbd.core.bundling.parameters import Rules
from ejbd.core.kernel import kernel
from ejbd.core.malleable.folding import half
from ejbd.sim.cluster import give_back as release
from ejbd.sim.cluster import hold
from ejbd.sim.elastic import advance, done_in, held_processors, plan_next, rules_of_job, work_left
from ejbd.sim.offering import choose_givers, computes, find_slots
from ejbd.sim.world import FOLDS, FREE, NOW, QUEUED, VISITS, World


@kernel
def _can_be_folded(w: World, rules: Rules) -> int:
    """Jobs that might give by folding what they borrow, to `w.giving`: how many."""
    now = w.clock[NOW]
    count = 0
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        if not computes(w, job):
            continue
        held = held_processors(w, job)
        row = w.row[job]
        gain = 0
        for at in range(w.held_count[job]):
            gain += w.held.processors[row][at] - half(w.held.processors[row][at])
        room_s = w.held.ends[row][w.held_count[job] - 1] - now
        omax = rules_of_job(w, job, rules).omax
        if not may_fold(w.processors[job], held, gain, w.expected[job] - now, room_s, omax, rules):
            continue
        w.giving.job[count] = job
        w.giving.held[count] = gain
        w.giving.room_s[count] = room_s
        w.giving.move_s[count] = 0.0
        count += 1
    return count


@kernel
def fold_back(w: World, rules: Rules) -> bool:
    """Jobs are folded for those that wait and would fit then; True: processors came free."""
    waiting = min(w.count[QUEUED], LOOKED_AT)
    if w.count[FOLDS] == 0 or rules.guard == 0 or waiting == 0:
        return False
    count = _can_be_folded(w, rules)
    if count == 0:
        return False
    found = choose_givers(w, waiting, count)
    for index in range(count):
        if w.giving.gives[index] >= 0:
            _resize(w, w.giving.job[index], False, rules)
    return found > 0


@kernel
def unfold(w: World, rules: Rules) -> None:
    """Folded jobs take again what they gave, in place, where no planned start needs it as long as they hold it."""
    if w.count[FOLDS] == 0:
        return
    now = w.clock[NOW]
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        if not computes(w, job):
            continue
        row = w.row[job]
        gave = 0
        room_s = 0.0
        for at in range(w.held_count[job]):
            gave += w.held.folded[row][at]
            room_s = max(room_s, w.held.walltime_ends[row][at] - now)
        if gave == 0 or gave > w.count[FREE] or held_processors(w, job) + gave > w.processors[job]:
            continue
        fits = False
        for slot in range(find_slots(w, rules)):
            fits = fits or (w.slot_processors[slot] >= gave and w.slot_durations[slot] >= room_s)
        if fits:
            _resize(w, job, True, rules)


@kernel
def _resize(w: World, job: int, whole: bool, rules: Rules) -> None:
    """Fold the ranks onto half of each subjob's processors, or spread them over what was given back of it."""
    advance(w, job, rules)
    now = w.clock[NOW]
    row = w.row[job]
    held = w.held.processors[row]
    folded = w.held.folded[row]
    for at in range(w.held_count[job]):
        until = w.held.walltime_ends[row][at]
        kept = held[at] + folded[at] if whole else half(held[at])
        if kept != held[at]:
            release(w, held[at], until, now)
            hold(w, kept, until)
        folded[at] += held[at] - kept
        held[at] = kept
    w.stalled[job] = now
    w.meanwhile_until[job] = now
    w.expected[job] = now + done_in(w, job, work_left(w, job), rules)
    plan_next(w, job, rules)
