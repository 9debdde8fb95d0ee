"""One elastic job a simulation, over many jobs of a log in turn (Tables 3 and 4).

The log is played once under EASY. At a target's submission the world is copied, the target made elastic in the copy,
and the copy played on until the target completes; then the log itself goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, Rules
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.parameters import Parameters
from ejbd.sim.cluster import EASY, EJB
from ejbd.sim.engine import PYSS_TIES, step
from ejbd.sim.fairness import shares
from ejbd.sim.invariants import check
from ejbd.sim.metrics import Outcome, change, finite, means, move_share, overhead, paper_trim
from ejbd.sim.playing import Game, Way, play
from ejbd.sim.run import Policy, Ties, refuse_fault, run
from ejbd.sim.workload import Workload
from ejbd.sim.world import (
    CLOCKS,
    COUNTS,
    DUE,
    ELASTIC,
    FAULT,
    FRESH,
    HEAPED,
    NEXT,
    QUEUED,
    RIGID,
    STAYS_RIGID,
    TOO_MANY_SUBJOBS,
    WITHOUT_J0,
    World,
    kernel_rules,
    new_world,
)


class TargetVectors(NamedTuple):
    """What becomes of each target, at its number in the log; the same as in :class:`World`."""

    start: Floats
    end: Floats
    used: Floats
    moved: Floats
    subjobs: Ints
    moves: Ints


class Snapshot(NamedTuple):
    """A world without an elastic job, put by."""

    count: Ints  # type: ignore[assignment]
    clock: Floats
    queue: Ints
    ends: Floats
    freed: Ints
    heap_time: Floats
    heap_order: Ints
    heap_job: Ints
    heap_start: Floats


@kernel
def save(w: World, s: Snapshot) -> None:
    """Put the world by."""
    for index in range(COUNTS):
        s.count[index] = w.count[index]
    for index in range(CLOCKS):
        s.clock[index] = w.clock[index]
    for index in range(w.count[QUEUED]):
        s.queue[index] = w.queue[index]
    for index in range(w.count[DUE]):
        s.ends[index] = w.ends[index]
        s.freed[index] = w.freed[index]
    for index in range(w.count[HEAPED]):
        s.heap_time[index] = w.heap_time[index]
        s.heap_order[index] = w.heap_order[index]
        s.heap_job[index] = w.heap_job[index]
        s.heap_start[index] = w.start[w.heap_job[index]]


@kernel
def restore(w: World, s: Snapshot) -> None:
    """Make the world what it was. What has become of jobs since then is written over when it comes about again."""
    for index in range(w.count[HEAPED]):
        w.heap_at[w.heap_job[index]] = -1
    for index in range(COUNTS):
        w.count[index] = s.count[index]
    for index in range(CLOCKS):
        w.clock[index] = s.clock[index]
    for index in range(w.count[QUEUED]):
        job = s.queue[index]
        w.queue[index] = job
        w.queue_processors[index] = w.processors[job]
        w.queue_walltime[index] = w.walltime[job]
    for index in range(w.count[DUE]):
        w.ends[index] = s.ends[index]
        w.freed[index] = s.freed[index]
    for index in range(w.count[HEAPED]):
        job = s.heap_job[index]
        w.heap_time[index] = s.heap_time[index]
        w.heap_order[index] = s.heap_order[index]
        w.heap_job[index] = job
        w.heap_at[job] = index
        w.start[job] = s.heap_start[index]


@kernel
def _record(w: World, job: int, found: TargetVectors) -> None:
    found.start[job] = w.start[job]
    found.end[job] = w.end[job]
    found.used[job] = w.used[job]
    found.moved[job] = w.moved[job]
    found.subjobs[job] = w.subjobs[job]
    found.moves[job] = w.moves[job]


@kernel
def play_targets(
    w: World,
    s: Snapshot,
    wanted: Ints,
    present: Ints,
    last: int,
    ties: int,
    rules: Rules,
    checking: bool,
    found: TargetVectors,
    most: int,
) -> bool:
    """Play the log to the submission of job `last`, and every wanted job as the one elastic job on the way.

    A target is played from just before its submission until it completes; `present` holds it meanwhile (-1: none). At
    most so many steps are played; whether there is more to come.
    """
    steps = 0
    target = present[0]
    while w.count[FAULT] == 0 and (target >= 0 or w.count[NEXT] <= last):
        if steps == most:
            present[0] = target
            return True
        steps += 1
        job = w.count[NEXT]
        if target < 0 and wanted[job] != 0:
            submits = w.count[HEAPED] == 0 or w.heap_time[0] > w.submit[job]
            if ties == PYSS_TIES and not submits:
                submits = w.heap_time[0] == w.submit[job]
            if submits:
                save(w, s)
                w.count[FRESH] = job
                w.candidate[job] = wanted[job]
                w.start[job] = -1.0
                w.end[job] = -1.0
                w.used[job] = 0.0  # it may have run beside an earlier target
                wanted[job] = 0
                target = job
        policy = EJB if target >= 0 else EASY
        step(w, policy, ties, rules)
        if checking:
            check(w, policy, rules)
        if target >= 0 and w.end[target] >= 0.0:
            _record(w, target, found)
            restore(w, s)
            w.candidate[target] = STAYS_RIGID
            w.mode[target] = RIGID
            w.subjobs[target] = 0
            w.moves[target] = 0
            target = -1
    return False


@dataclass(frozen=True, slots=True)
class TargetRuns:
    """Targets by their number in the log, what became of each, and what becomes of it under EASY."""

    workload: Workload
    targets: Any  # numbers of the targets
    baseline: Outcome
    outcome: Outcome  # of the targets alone; other entries mean nothing
    elapsed_s: float  # without kernels_s
    kernels_s: float = 0.0  # compiling or loading kernels

    def summary(self) -> dict[str, Any]:
        """Means before and after, changes in per cent, and the figures of Table 4."""
        jobs, at = self.workload.jobs, self.targets
        before, after = means(jobs, self.baseline, at), means(jobs, self.outcome, at)
        several, moved = shares(self.outcome, at)
        return {
            "targets": int(at.size),
            "before": before.to_json(),
            "after": after.to_json(),
            "wait_change_percent": finite(change(before.mean_wait_s, after.mean_wait_s)),
            "run_change_percent": finite(change(before.mean_run_s, after.mean_run_s)),
            "turnaround_change_percent": finite(change(before.mean_turnaround_s, after.mean_turnaround_s)),
            "mean_subjobs": float(self.outcome.subjobs[at].mean()) if at.size else 0.0,
            "mean_migrations": float(self.outcome.moves[at].mean()) if at.size else 0.0,
            "several_subjobs_share": finite(several),
            "moved_share": finite(moved),
            "migration_duration_percent": 100 * float(move_share(self.outcome)[at].mean()) if at.size else 0.0,
            "overhead_percent": 100 * float(overhead(jobs, self.outcome)[at].mean()) if at.size else 0.0,
            "elapsed_s": self.elapsed_s,
            "kernels_s": self.kernels_s,
        }


def run_targets(
    workload: Workload,
    *,
    parameters: Parameters | None = None,
    ties: Ties = Ties.PAPER,
    min_processors: int = 9,
    candidates: Any = None,
    trim: bool = True,
    every: int = 1,
    baseline: Outcome | None = None,
    keep_placeholder: bool = True,
    checking: bool = False,
    plain: bool = False,
    again: float = 1,
) -> TargetRuns:
    """Simulate every eligible job as the only elastic one: `min_processors` wide at least (or among `candidates`,
    flags), and made to wait by EASY.

    `keep_placeholder`, `checking`, `plain` and `again` are as for :func:`run`. `trim` leaves out what the paper's
    tables leave out; `every` takes one in so many of the targets. With `batch` ties there is no moment to copy the
    world at: they are refused as ValueError.
    """
    if ties is Ties.BATCH:
        raise ValueError("targets are simulated with paper or pyss ties")
    jobs = workload.jobs
    elapsed_s = kernels_s = 0.0
    if baseline is None:
        baseline = run(workload, Policy.EASY, ties=ties, plain=plain)
        elapsed_s, kernels_s = baseline.elapsed_s, baseline.kernels_s
    if candidates is None:
        candidates = jobs.processors >= min_processors
    eligible = candidates & (baseline.start > jobs.submit)
    if trim:
        eligible &= paper_trim(jobs, baseline)
    targets = np.flatnonzero(eligible)[::every]
    wanted = np.zeros(jobs.submit.size, dtype=np.int64)
    wanted[targets] = ELASTIC if keep_placeholder else WITHOUT_J0
    last = int(targets[-1]) if targets.size else -1
    asked = parameters or BundlingParameters()
    width, way = 32, Way.PLAIN if plain else Way.AUTO
    while True:

        def make(arrays: bool, width: int = width) -> tuple[Any, ...]:
            none = np.zeros(jobs.submit.size, dtype=np.int64)
            w = new_world(jobs, workload.processors, none, elastic_rows=1, width=width, plain=not arrays)
            found = TargetVectors(*(_like(v) for v in (w.start, w.end, w.used, w.moved, w.subjobs, w.moves)))
            by = (w.count, w.clock, w.queue, w.ends, w.freed, w.heap_time, w.heap_order, w.heap_job, w.heap_time)
            snapshot = Snapshot(*(_like(vector) for vector in by))
            left, present = (wanted.copy(), np.full(1, -1)) if arrays else (wanted.tolist(), [-1])
            rules = kernel_rules(asked, arrays=arrays)
            return w, snapshot, left, present, last, int(ties), rules, checking, found

        played = play(_game(workload, targets, last, make), way, again)
        elapsed_s += played.elapsed_s
        kernels_s += played.kernels_s
        way = Way.COMPILED if played.compiled else way
        w: World = played.state[0]
        if w.count[FAULT] != TOO_MANY_SUBJOBS:
            break
        width *= 2
    refuse_fault(w)
    start, end, used, moved, subjobs, moves = (np.asarray(vector) for vector in played.state[-1])
    found = Outcome(
        start,
        end,
        used,
        moved,
        subjobs,
        moves,
        wanted,
        0.0,
        0.0,
        0,
        played.elapsed_s,
        played.kernels_s,
        played.compiled,
    )
    return TargetRuns(workload, targets, baseline, found, elapsed_s, kernels_s)


def _game(workload: Workload, targets: Any, last: int, make: Callable[[bool], tuple[Any, ...]]) -> Game:
    """What is to be played, and what it takes about (a target of an interpreted log some ms)."""

    def done(state: tuple[Any, ...]) -> float:
        return float(state[0].count[NEXT]) / max(1, last + 1)

    return Game(f"{workload.name}, targets", play_targets, make, done, 3e-3 * targets.size, 22.0)


def _like(vector: Any) -> Any:
    return vector.copy()
