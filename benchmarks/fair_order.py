#!/usr/bin/env python3
"""What a fair order between users costs the mean, and what it does for the user that is worst off, simulated.

    benchmarks/fair_order.py [LOG] [--limit JOBS]

A log with users, every job of 8 processors or more elastic, as queues have it by default, with half-lives of an hour, a
day and a week beside no fair order. Worst off is the user (of 10 jobs and more) with the highest mean bounded slowdown.
Then a made log: 500 jobs of one user wait, and one of another comes, where 16 of 256 processors are left to windows.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.sim.door import Result, load, play
from ejbd.sim.metrics import BOUND_S
from ejbd.sim.workload import Workload
from ejbd.sim.world import Jobs
from harness import machine

HALF_LIVES_S = {"none": 0.0, "an hour": 3600.0, "a day": 86400.0, "a week": 604800.0}
QUEUE = BundlingParameters(suspend=True, order=Order.LEAST_WORK, guard=Guard.ON)
LEAST_JOBS = 10


def by_user(result: Result) -> dict[int, float]:
    """Mean bounded slowdown of each user with enough jobs."""
    users, run = result.workload.users, result.workload.jobs.run
    assert users is not None
    slowdown = np.maximum(1.0, result.turnaround / np.maximum(run, BOUND_S))
    numbers, counts = np.unique(users, return_counts=True)
    return {int(u): float(slowdown[users == u].mean()) for u in numbers[counts >= LEAST_JOBS]}


def of_a_log(path: Path, limit: int | None) -> None:
    workload = load(path, limit=limit)
    easy = play(workload, "easy")
    was = easy.turnaround.mean()
    print(
        f"\n{workload.name}, {len(workload)} jobs: mean turnaround of EASY {was:.0f} s, worst-off user's mean bounded"
    )
    print(f"slowdown {max(by_user(easy).values()):.0f}\n")
    print("| half-life | mean turnaround, against EASY | worst-off user | user at the 95th percentile |")
    print("| --- | ---: | ---: | ---: |")
    for name, seconds in HALF_LIVES_S.items():
        found = play(workload, "ejb", parameters=replace(QUEUE, fair_half_life_s=seconds))
        change, users = 100 * (found.turnaround.mean() / was - 1), list(by_user(found).values())
        print(f"| {name} | {change:+.1f} % | {max(users):.0f} | {np.percentile(users, 95):.1f} |", flush=True)


def made(seed: int = 1) -> Workload:
    """256 processors, 240 of which wide jobs have one after the other; alice's 500 of a few minutes, and bob's one."""
    dice = np.random.default_rng(seed)
    rows = [(float(at), 240, 3600.0, 3600.0, 3) for at in range(60)]
    rows += [(100.0 + at, int(dice.choice([32, 64])), 600.0, float(dice.integers(200, 600)), 1) for at in range(500)]
    rows += [(650.0, 32, 1800.0, 1500.0, 2)]
    table = np.array(sorted(rows))
    jobs = Jobs(
        table[:, 0].copy(), table[:, 3].copy(), table[:, 2].copy(), table[:, 1].astype(np.int64),
        np.arange(1, len(rows) + 1),
    )  # fmt: skip
    return Workload("500 and one", 256, jobs, users=table[:, 4].astype(np.int64))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--limit", type=int, help="the first jobs of the log only")
    given = parser.parse_args()
    print(machine())
    if given.log is not None:
        of_a_log(given.log, given.limit)
    workload = made()
    assert workload.users is not None
    print("\n| order | bob's one begins after, s | jobs of alice's that have begun by then | mean turnaround, s |")
    print("| --- | ---: | ---: | ---: |")
    for name, seconds in HALF_LIVES_S.items():
        found = play(workload, "ejb", parameters=replace(QUEUE, fair_half_life_s=seconds))
        bob = int(np.flatnonzero(workload.users == 2)[0])
        before = int((found.start[workload.users == 1] < found.start[bob]).sum())
        wait, mean = found.start[bob] - workload.jobs.submit[bob], found.turnaround.mean()
        print(f"| {name} | {wait:.0f} | {before} | {mean:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
