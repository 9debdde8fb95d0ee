"""Evolving jobs on a log: conservative backfilling in which a job may have a profile of widths.

Every waiting job has a reservation, a rigid one of one step; at every pass the reservations are compressed in the order
of the queue (`ejbd.core.conservative`), by `fit` (`ejbd.core.evolving.fitting`). So nothing is ever put off, and every
width is reserved before a job begins. With rigid jobs alone it is conservative backfilling, start for start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ejbd.core.evolving.fitting import compact_steps, fit_steps
from ejbd.core.evolving.profiles import Profile
from ejbd.core.freespace import occupy, place
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.errors import Code, EjbError
from ejbd.sim.metrics import Outcome
from ejbd.sim.playing import Game, Way, play
from ejbd.sim.workload import Workload

NEXT, QUEUED, RUNNING, STEPS, EVENTS = range(5)


class Evolving(NamedTuple):
    """The state of a simulation. Jobs by their submission; `first` and `steps` say which of the flat vectors are a
    job's. `last_s`: how long its last step really lasts. `count`, `clock`: see above, and the time."""

    submit: Floats
    last_s: Floats
    first: Ints
    steps: Ints
    durations: Floats
    widths: Ints
    starts: Floats
    late: Floats
    bounds: Floats
    reserved: Floats  # the completion that a job is promised; infinite for a new one
    end: Floats
    queue: Ints
    running: Ints
    count: Ints  # type: ignore[assignment]  # shadows tuple.count
    clock: Floats
    times: Floats
    levels: Ints


@kernel
def play_evolving(w: Evolving, limit: float, compact: bool, most: int) -> bool:
    """Take up to so many events; whether there are more to come. All that happens at one time comes before one pass."""
    for _ in range(most):
        now = next_event(w)
        if now == math.inf:
            return False
        w.clock[0] = now
        w.count[STEPS] = _from_now(w.times, w.levels, w.count[STEPS], now)
        _take_ends(w, now)
        while w.count[NEXT] < len(w.submit) and w.submit[w.count[NEXT]] <= now:
            w.queue[w.count[QUEUED]] = w.count[NEXT]
            w.count[QUEUED] += 1
            w.count[NEXT] += 1
        schedule_evolving(w, now, limit, compact)
        w.count[EVENTS] += 1
    return True


@kernel
def next_event(w: Evolving) -> float:
    """The next arrival, true end or promised start; infinite: nothing more happens."""
    found = math.inf
    if w.count[NEXT] < len(w.submit):
        found = w.submit[w.count[NEXT]]
    for at in range(w.count[RUNNING]):
        if w.end[w.running[at]] < found:
            found = w.end[w.running[at]]
    for at in range(w.count[QUEUED]):
        if w.starts[w.first[w.queue[at]]] < found:
            found = w.starts[w.first[w.queue[at]]]
    return found


@kernel
def _take_ends(w: Evolving, now: float) -> None:
    """Jobs that are over give back what their last step was promised beyond."""
    kept = 0
    for at in range(w.count[RUNNING]):
        job = w.running[at]
        if w.end[job] > now:
            w.running[kept] = job
            kept += 1
        elif w.reserved[job] > now:
            width = w.widths[w.first[job] + w.steps[job] - 1]
            w.count[STEPS] = occupy(w.times, w.levels, w.count[STEPS], now, w.reserved[job], -width)
    w.count[RUNNING] = kept


@kernel
def schedule_evolving(w: Evolving, now: float, limit: float, compact: bool) -> None:
    """One pass: reservations are compressed in the order of the queue, and what is due starts."""
    kept = 0
    for at in range(w.count[QUEUED]):
        job = w.queue[at]
        first = w.first[job]
        if w.starts[first] > now:
            if w.reserved[job] < math.inf:
                _hold(w, job, -1)
            _fit(w, job, now, limit, compact)
            _hold(w, job, 1)
        if w.starts[first] <= now:
            w.end[job] = w.starts[first + w.steps[job] - 1] + w.last_s[job]
            w.running[w.count[RUNNING]] = job
            w.count[RUNNING] += 1
        else:
            w.queue[kept] = job
            kept += 1
    w.count[QUEUED] = kept


@kernel
def _fit(w: Evolving, job: int, now: float, limit: float, compact: bool) -> None:
    first, steps, count = w.first[job], w.steps[job], w.count[STEPS]
    w.reserved[job] = fit_steps(
        w.times, w.levels, count, w.durations, w.widths, first, steps, now, limit, w.starts, w.bounds
    )
    if compact and compact_steps(
        w.times, w.levels, count, w.durations, w.widths, first, steps, limit, w.starts, w.late, w.bounds
    ):
        for at in range(first, first + steps):
            w.starts[at] = w.late[at]


@kernel
def _hold(w: Evolving, job: int, sign: int) -> None:
    """Take what a job is promised out of the free space (1), or give it back (-1)."""
    last = w.first[job] + w.steps[job] - 1
    for at in range(w.first[job], last + 1):
        end = w.reserved[job]
        if at < last:
            end = w.starts[at + 1]
        w.count[STEPS] = occupy(w.times, w.levels, w.count[STEPS], w.starts[at], end, sign * w.widths[at])


@kernel
def _from_now(times: Floats, levels: Ints, steps: int, now: float) -> int:
    """Forget what was free before; the new number of steps."""
    gone = place(times, steps, now)
    if gone > 0:
        for at in range(gone, steps):
            times[at - gone] = times[at]
            levels[at - gone] = levels[at]
    if times[0] < now:
        times[0] = now
    return steps - gone


def run_evolving(
    workload: Workload,
    profiles: Sequence[Profile | None],
    *,
    limit: float = 1.0,
    compact: bool = False,
    plain: bool = False,
) -> Outcome:
    """Simulate every job to its end; `profiles` has one for each job that evolves, None for a rigid one.

    A profile lasts as long as its job's walltime, and the job ends in its last step. `limit`, `compact`: as `fit` has
    them. Raises EjbError for a profile that does not fit its job or the cluster.
    """
    jobs = workload.jobs
    first = np.zeros(len(workload), dtype=np.int64)
    steps, last_s = np.ones(len(workload), dtype=np.int64), np.array(jobs.run)
    durations: list[float] = []
    widths: list[int] = []
    for number, profile in enumerate(profiles):
        first[number] = len(durations)
        if profile is None:
            durations.append(float(jobs.walltime[number]))
            widths.append(int(jobs.processors[number]))
            continue
        before = profile.duration_s - profile.steps[-1].duration_s
        last_s[number] = jobs.run[number] - before
        if profile.peak > workload.processors or not 0 < last_s[number] <= profile.steps[-1].duration_s:
            raise EjbError(
                Code.INVALID, f"the profile of job {jobs.id[number]} is none of a job that long on this cluster"
            )
        steps[number] = len(profile.steps)
        durations += [step.duration_s for step in profile.steps]
        widths += [step.processors for step in profile.steps]

    def make(arrays: bool) -> tuple[Any, ...]:
        return _world(workload, first, steps, last_s, durations, widths, arrays=arrays), float(limit), compact

    def done(state: tuple[Any, ...]) -> float:
        return float(state[0].count[NEXT]) / max(1, len(workload))

    game = Game(f"{workload.name}, evolving", play_evolving, make, done, 1e-3 * len(workload), 20.0)
    played = play(game, Way.PLAIN if plain else Way.AUTO)
    w: Evolving = played.state[0]
    starts, end = np.asarray(w.starts), np.asarray(w.end)
    ends = np.append(starts[1:], 0.0)
    ends[first + steps - 1] = end
    used = np.add.reduceat((ends - starts) * np.asarray(w.widths), first)
    none = np.zeros(len(workload))
    counts = np.zeros(len(workload), dtype=np.int64)
    evolves = np.array([profile is not None for profile in profiles], dtype=np.int64)
    return Outcome(
        starts[first], end, used, none, counts, counts, evolves, 0.0, 0.0, int(w.count[EVENTS]), played.elapsed_s,
        played.kernels_s, played.compiled,
    )  # fmt: skip


def _world(
    workload: Workload,
    first: Any,
    steps: Any,
    last_s: Any,
    durations: list[float],
    widths: list[int],
    *,
    arrays: bool,
) -> Evolving:
    jobs, flat = len(workload), len(durations)
    room = 2 * flat + 4

    def floats(size: int, value: float = 0.0) -> Any:
        return np.full(size, value) if arrays else [value] * size

    def ints(size: int) -> Any:
        return np.zeros(size, dtype=np.int64) if arrays else [0] * size

    def given(values: Any, kind: Any) -> Any:
        return np.array(values, dtype=kind) if arrays else np.asarray(values, dtype=kind).tolist()

    w = Evolving(
        given(workload.jobs.submit, np.float64), given(last_s, np.float64), given(first, np.int64),
        given(steps, np.int64), given(durations, np.float64), given(widths, np.int64), floats(flat, math.inf),
        floats(flat), floats(flat), floats(jobs, math.inf), floats(jobs, math.inf), ints(jobs + 1), ints(jobs + 1),
        ints(5), floats(1), floats(room), ints(room),
    )  # fmt: skip
    w.count[STEPS] = 1
    w.levels[0] = workload.processors
    w.times[0] = float(workload.jobs.submit[0]) if jobs else 0.0
    return w
