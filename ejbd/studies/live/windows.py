"""Which part of a log is played for real, by a rule that knows nothing of EJB's results; and how its play begins.

A play that begins on an empty cluster has hardly a queue before it is over. So the log is simulated under EASY first,
and a window begins with the cluster as it stands there: jobs that run go on for as long as they have left, jobs that
wait are in the queue, and the others arrive at their times. The former are the same under every policy and are counted
in none; the window's jobs are those that wait and those that arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.workload import Workload
from ejbd.sim.world import FloatArray, IntArray, Jobs

PARTS = 2
NUMBERS = (1, 2, 3, 4)
HOUR_S = 3600.0
BEGIN_S, APART_S = 3.0, 1.0
"""Of the play: until the jobs that run have been started, and between jobs that wait, so that they keep their order."""


@dataclass(frozen=True, slots=True)
class Rule:
    """In each half of the log (by its number of jobs), the first and the last submission with a window like this.

    So many `jobs`, those that wait at that time first; at least `waiting` wait; a share of `elastic` at least is
    `min_processors` wide or wider; they are all submitted within `arrivals_s`; and with EASY, in the log, they and
    those that run at the beginning have all ended after `end_s`. Times are the log's, in seconds.
    """

    jobs: int = 100
    waiting: int = 10
    elastic: float = 0.2
    min_processors: int = 8
    arrivals_s: float = 12 * HOUR_S
    end_s: float = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs of a log by their places in it. `begin_s`: the submission of the first that arrives, in the log's time."""

    begin_s: float
    running: IntArray
    left_s: FloatArray  # of `running`: run times from the beginning on
    walltime_s: FloatArray  # of `running`: what is left of them
    waiting: IntArray
    arriving: IntArray

    def __len__(self) -> int:
        return int(self.waiting.size + self.arriving.size)


def on_cluster(workload: Workload, processors: int) -> Workload:
    """The jobs on a cluster of another size: widths in proportion, rounded up."""
    width = np.ceil(workload.jobs.processors * (processors / workload.processors) - 1e-9).astype(np.int64)
    return replace(
        workload, processors=processors, jobs=workload.jobs._replace(processors=np.clip(width, 1, processors))
    )


def pick(workload: Workload, rule: Rule, numbers: Sequence[int] = NUMBERS) -> dict[int, Window]:
    """The windows of the log by their numbers: 1 and 2 are the first of each half, 3 and 4 the last.

    A half has neither or both, which can be the same one. Raises EjbError where none of the `numbers` is there.
    """
    outcome = run(workload, Policy.EASY, ties=Ties.BATCH)
    found: dict[int, Window] = {}
    missing = []
    for number in numbers:
        part, last = (number - 1) % PARTS, number > PARTS
        first, behind = len(workload) * part // PARTS, len(workload) * (part + 1) // PARTS
        places = range(first, behind)
        windows = (
            _window(workload, outcome.start, outcome.end, at, behind, rule)
            for at in (reversed(places) if last else places)
        )
        window = next((one for one in windows if one is not None), None)
        if window is None:
            missing.append(f"no window of jobs {first + 1} to {behind} is as the rule says")
        else:
            found[number] = window
    if not found:
        raise EjbError(Code.INVALID, f"{workload.name}: {missing[0]}")
    return found


def _window(workload: Workload, start: FloatArray, end: FloatArray, at: int, behind: int, rule: Rule) -> Window | None:
    """The window that begins with the submission of job `at`, if it is as the rule says."""
    jobs = workload.jobs
    begin_s = float(jobs.submit[at])
    there = np.flatnonzero(end[:at] > begin_s)
    waiting = there[start[there] > begin_s]
    if not rule.waiting <= waiting.size < rule.jobs:
        return None
    arriving = np.arange(at, at + rule.jobs - waiting.size)
    if arriving[-1] >= behind or float(jobs.submit[arriving[-1]]) - begin_s > rule.arrivals_s:
        return None
    ours = np.concatenate([waiting, arriving])
    running = there[start[there] <= begin_s]
    if (jobs.processors[ours] >= rule.min_processors).mean() < rule.elastic:
        return None
    if max(end[ours].max(), end[running].max(initial=0.0)) - begin_s > rule.end_s:
        return None
    gone_s = begin_s - start[running]
    return Window(begin_s, running, end[running] - begin_s, jobs.walltime[running] - gone_s, waiting, arriving)


def opened(workload: Workload, window: Window, scale: float) -> Workload:
    """The jobs of a window in the log's time, with what it takes to bring the play to its beginning.

    Those that run come first, at once, and run so much longer; then those that wait, one after the other; then those
    that arrive. `scale`: of the play; the opening is in the play's time.
    """
    jobs = workload.jobs
    opening_s = (BEGIN_S + APART_S * window.waiting.size) / scale
    submit = [
        np.full(window.running.size, window.begin_s - opening_s),
        window.begin_s - opening_s + (BEGIN_S + APART_S * np.arange(window.waiting.size)) / scale,
        jobs.submit[window.arriving].astype(float),
    ]
    ours = np.concatenate([window.waiting, window.arriving])
    made = Jobs(
        np.concatenate(submit),
        np.concatenate([window.left_s + opening_s, jobs.run[ours]]),
        np.concatenate([window.walltime_s + opening_s, jobs.walltime[ours]]),
        np.concatenate([jobs.processors[window.running], jobs.processors[ours]]),
        np.concatenate([jobs.id[window.running], jobs.id[ours]]),
    )
    return replace(workload, jobs=made, users=None)
