"""What fitting evolving jobs costs (Klein & Perez 2011), beside the paper's Algorithm 2 written down in plain Python.

    python benchmarks/evolving_fit.py [--tests 30] [--runs 3] [--longest 10000]

First whole schedules: the paper's tests of 15 to 20 jobs on 100 nodes, each algorithm as the daemon has it
(interpreted), as the simulator has it (compiled, where numba is there), and as the reference has it: a recursion on a
sorted list of breakpoints, without compacting. All must find the same completions. The paper: 24.7 ms a schedule with
noX (Core 2 Duo of 2008). Aim: 0.5 ms.

Then one fit, as the steps of the job and the length of the free space grow. Figures are CPU time of this process, the
least of the runs, since others may be busy.
"""

from __future__ import annotations

import argparse
import bisect
import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from ejbd.core.evolving.fitting import fit_steps  # noqa: E402
from ejbd.core.evolving.listing import Algorithm, schedule  # noqa: E402
from ejbd.core.evolving.profiles import Profile, Step  # noqa: E402
from ejbd.core.evolving.space import FreeSpace  # noqa: E402
from ejbd.core.freespace import occupy  # noqa: E402
from ejbd.core.kernel import Floats, Ints, kernel  # noqa: E402
from ejbd.sim.compiled import can_compile, compiled  # noqa: E402
from ejbd.studies.evolving.experiment import draw  # noqa: E402
from ejbd.studies.evolving.printed import NODES  # noqa: E402


def least(call: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """The least CPU milliseconds of a few calls, and what the last of them returned."""
    best, result = math.inf, None
    for _ in range(runs):
        begin = time.process_time()
        result = call()
        best = min(best, time.process_time() - begin)
    return 1000 * best, result


# -- the reference: Algorithm 2 as it is printed, misprints put right --------------------------------------------------


class Breakpoints:
    """Occupation over time: sorted times, and how much is taken from each on."""

    def __init__(self) -> None:
        self.times: list[float] = [0.0]
        self.used: list[int] = [0]

    def greatest(self, begin: float, end: float) -> tuple[int, float]:
        """The most that is taken in between, and when the last step of it is over."""
        at, most, where = bisect.bisect_right(self.times, begin) - 1, 0, end
        while at < len(self.times) and self.times[at] < end:
            if self.used[at] >= most:
                most = self.used[at]
                where = self.times[at + 1] if at + 1 < len(self.times) else math.inf
            at += 1
        return most, where

    def add(self, begin: float, end: float, nodes: int) -> None:
        for time_s in (begin, end):
            at = bisect.bisect_left(self.times, time_s)
            if at == len(self.times) or self.times[at] != time_s:
                self.times.insert(at, time_s)
                self.used.insert(at, self.used[at - 1])
        for at in range(bisect.bisect_left(self.times, begin), bisect.bisect_left(self.times, end)):
            self.used[at] += nodes


Steps = list[tuple[float, int]]


def reference_fit(steps: Steps, taken: Breakpoints, limit: float, i: int, t0: float) -> tuple[float, Steps | None]:
    if i == len(steps):
        return t0, []
    d, n = steps[i]
    ts = t0
    while True:
        most, where = taken.greatest(ts, ts + d)
        if NODES - most < n:
            ts = where
            continue
        if i > 0:
            before, held = steps[i - 1]
            earliest = ts - limit * before
            if earliest > t0 - before:
                return earliest, None
            if ts > t0:
                most, where = taken.greatest(t0, ts)
                if NODES - most < held:
                    return where, None
        tail, rest = reference_fit(steps, taken, limit, i + 1, ts + d)
        if rest is None:
            ts = tail
            continue
        if i > 0:
            return ts, [(tail - ts, n), *rest]
        return tail - d, [(d, n), *rest]


def reference(jobs: list[Profile], limit: float, rigid: bool) -> list[float]:
    taken, ends = Breakpoints(), []
    for job in jobs:
        steps = [(step.duration_s, step.processors) for step in (job.rigid() if rigid else job).steps]
        at, found = reference_fit(steps, taken, limit, 0, 0.0)
        assert found is not None
        for duration, nodes in found:
            taken.add(at, at + duration, nodes)
            at += duration
        ends.append(at)
    return ends


# -- the same kernels, compiled: a whole schedule is one call ---------------------------------------------------------


@kernel
def schedule_all(
    times: Floats,
    levels: Ints,
    durations: Floats,
    widths: Ints,
    firsts: Ints,
    counts: Ints,
    limit: float,
    starts: Floats,
    bounds: Floats,
    ends: Floats,
) -> int:
    """List scheduling on an empty cluster; the number of steps of the profile at the end."""
    steps = 1
    for job in range(len(firsts)):
        first, last = firsts[job], firsts[job] + counts[job] - 1
        ends[job] = fit_steps(times, levels, steps, durations, widths, first, counts[job], 0.0, limit, starts, bounds)
        for at in range(first, last + 1):
            end = ends[job]
            if at < last:
                end = starts[at + 1]
            steps = occupy(times, levels, steps, starts[at], end, widths[at])
    return steps


def arrays_of(jobs: list[Profile], limit: float) -> tuple[Any, ...]:
    flat = [step for job in jobs for step in job.steps]
    counts = np.array([len(job.steps) for job in jobs])
    times, levels = np.zeros(2 * len(flat) + 4), np.zeros(2 * len(flat) + 4, dtype=np.int64)
    levels[0] = NODES
    durations, widths = np.array([s.duration_s for s in flat]), np.array([s.processors for s in flat])
    room = np.zeros(len(flat))
    firsts = np.cumsum(counts) - counts
    return times, levels, durations, widths, firsts, counts, float(limit), room, room.copy(), np.zeros(len(jobs))


def schedules(tests: int, runs: int) -> None:
    dice = random.Random(2011)
    drawn = [draw(dice) for _ in range(tests)]
    print("| algorithm | interpreted (ms a schedule) | compiled | reference |")
    print("| --- | ---: | ---: | ---: |")
    for algorithm in Algorithm:
        ours, ends = least(lambda: [schedule(jobs, NODES, algorithm) for jobs in drawn], runs)  # noqa: B023
        asked = [[job.rigid() for job in jobs] if algorithm is Algorithm.RIGID else jobs for jobs in drawn]
        theirs = fast = ""
        if not algorithm.compacts:
            is_rigid = algorithm is Algorithm.RIGID
            spent, told = least(lambda: [reference(jobs, algorithm.limit, is_rigid) for jobs in drawn], runs)  # noqa: B023
            assert told == [[one.completion_s for one in found] for found in ends], "both find the same completions"
            theirs = f"{spent / tests:.2f}"
        if can_compile() and not algorithm.compacts:
            call = compiled(schedule_all, arrays_of(asked[0], algorithm.limit))
            best = math.inf
            for _ in range(runs):
                given = [arrays_of(jobs, algorithm.limit) for jobs in asked]
                spent, _ = least(lambda: [call(*one) for one in given], 1)  # noqa: B023
                best = min(best, spent)
            assert [one[-1].tolist() for one in given] == [[f.completion_s for f in found] for found in ends]
            fast = f"{best / tests:.3f}"
        print(f"| {algorithm.value} | {ours / tests:.2f} | {fast} | {theirs} |", flush=True)


def growth(longest: int, runs: int) -> None:
    """Steps and profile of one length, drawn as the paper draws: widths up to three quarters of the cluster."""
    sizes = [size for size in (10, 100, 1000, 10_000) if size <= longest]
    print("\n| steps of the job | breakpoints of the space | noX (ms a fit) | 2X | 2X+c | infX |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for steps, breakpoints in [*((size, 100) for size in sizes), *((10, size) for size in sizes), (longest, longest)]:
        dice = random.Random(f"{steps} {breakpoints}")
        taken = [Step(float(dice.randint(500, 3600)), dice.randint(0, NODES)) for _ in range(breakpoints)]
        times, at = [0.0], 0.0
        for one in taken:
            at += one.duration_s
            times.append(at)
        space = FreeSpace(times, [*(NODES - one.processors for one in taken), NODES])
        profile = Profile(tuple(Step(float(dice.randint(50, 360)), dice.randint(1, 75)) for _ in range(steps)))
        cells = []
        for limit, compact in ((1.0, False), (2.0, False), (2.0, True), (math.inf, False)):
            spent, found = least(lambda: space.fit(profile, limit=limit, compact=compact), runs)  # noqa: B023
            assert found is not None
            cells.append(f"{spent:.2f}")
        print(f"| {steps:,} | {breakpoints:,} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tests", type=int, default=30)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--longest", type=int, default=10_000)
    given = options.parse_args()
    schedules(given.tests, given.runs)
    growth(given.longest, given.runs)


if __name__ == "__main__":
    main()
