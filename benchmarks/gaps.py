#!/usr/bin/env python3
"""Forty runs of rule A (`gaps = "on"`) on a real Slurm: none runs twice at once, and no wide job starts late.

    benchmarks/gaps.py [--runs 40] [--rounds 3] [--seed 1] [--out FILE.json]

A private Slurm of four nodes of one processor. In each round a job of others holds two nodes for nearly three minutes,
and a job for all four waits behind it; the two free nodes are the window. The runs come through EJB, passed through,
one processor each. Their run times follow a lognormal law (median 20 s), and earlier runs of it are in the history.
Their user asks for nine minutes, which is too long for any window; so without the rule none would run there.

Checked by Slurm's own record of jobs (exit code 1 where one does not hold): no two batch jobs of one run overlap; each
run ended well, and was begun once more than it timed out; each of the others' wide jobs starts by the latest start that
Slurm had planned for it before any run came. Told: how many were sent, timed out, and were done before the last wide
job started. Ten minutes or so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from harness import folder, machine
from tests.fakes.daemon import Daemon
from tests.fakes.known_runs import learn
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster
from walltimes import records, seconds

NODES, HALF = 4, 2
MEDIAN_S, SIGMA = 20.0, 0.9
LONGEST_RUN_S = 400.0  # so near to the request that Slurm's looks would decide
OWN_MINUTES = 9
HELD_S, HELD_MINUTES = 175, 3
WIDE_MINUTES = 2
POLL_S = 1.0
WHOLE_S = 2.0  # Slurm writes whole seconds: so much may two times of it be off
PLANNING_S = 60.0  # for the wide jobs behind the first: Slurm's backfill plans them a while later
LONGEST_S = 1500.0
NAP = "#!/bin/bash\n#EJB app=nap elastic=off rerunnable\nexec sleep {run_s:.1f}\n"


@dataclass
class Found:
    """What came of it."""

    runs: int
    sent: int = 0
    timed_out: int = 0
    in_windows: int = 0  # runs that were over before the last wide job started
    late_s: list[float] = field(default_factory=list)  # of each wide job: its start after the one planned at first
    faults: list[str] = field(default_factory=list)


def drawn(chance: random.Random) -> float:
    return min(chance.lognormvariate(math.log(MEDIAN_S), SIGMA), LONGEST_RUN_S)


def crowd(cluster: SlurmCluster, rounds: int) -> tuple[list[str], list[str]]:
    """The jobs of others: those that hold half of the nodes, and the wide ones behind them."""
    holds, wide = [], []
    for _ in range(rounds):
        holds.append(cluster.sbatch(f"-N{HALF}", f"-n{HALF}", f"-t{HELD_MINUTES}", script=f"sleep {HELD_S}"))
        wide.append(cluster.sbatch(f"-N{NODES}", f"-n{NODES}", f"-t{WIDE_MINUTES}", script="sleep 1"))
    cluster.until(lambda: cluster.states()[holds[0]] == "RUNNING", "what holds the nodes does not run", 60)
    return holds, wide


def planned(cluster: SlurmCluster, job: str) -> float | None:
    told = cluster.run("squeue", "--noheader", "--format=%S", f"--jobs={job}").strip()
    return None if told in ("", "N/A") else datetime.fromisoformat(told).timestamp()


def promises(cluster: SlurmCluster, wide: Sequence[str]) -> dict[str, float | None]:
    """The starts that are planned before any run comes; None: Slurm has planned none within `PLANNING_S`."""
    cluster.until(lambda: planned(cluster, wide[0]) is not None, "no start is planned", 90)
    until = time.monotonic() + PLANNING_S
    while True:
        found = {job: planned(cluster, job) for job in wide}
        if None not in found.values() or time.monotonic() > until:
            return found
        time.sleep(2)


def play(runs: int, rounds: int, seed: int) -> Found:
    found, chance = Found(runs), random.Random(seed)
    toml = f'batch = "slurm"\npoll_s = {POLL_S:g}\nworker_python = "{sys.executable}"\n'
    toml += '[queues.default]\ngaps = "on"\n'
    with folder() as where, slurm_cluster(NODES, 1) as cluster:
        daemon = Daemon(where, toml, {"SLURM_CONF": str(cluster.conf)}, as_program=True)
        try:
            daemon.start()
            learn(daemon, "nap", 60.0 * OWN_MINUTES, [drawn(chance) for _ in range(100)])
            _, wide = crowd(cluster, rounds)
            promised = promises(cluster, wide)
            jobs = [submit(daemon, drawn(chance)) for _ in range(runs)]
            begun = time.monotonic()
            left = set(jobs)
            while left and time.monotonic() < begun + LONGEST_S:
                time.sleep(2)
                left = {job for job in left if daemon.job(job)["end_s"] is None}
            cluster.until(lambda: not cluster.run("squeue", "--noheader").strip(), "jobs are left in Slurm", 120)
            judge(found, daemon, records(cluster), jobs, promised)
        finally:
            daemon.client.close()
            daemon.stop()
    return found


def submit(daemon: Daemon, run_s: float) -> str:
    script = NAP.format(run_s=run_s)
    return daemon.submit(ranks=1, time=str(OWN_MINUTES), script=script, overrides={"engine": "none"})


def judge(
    found: Found,
    daemon: Daemon,
    known: dict[str, dict[str, str]],
    jobs: Sequence[str],
    promised: dict[str, float | None],
) -> None:
    starts = {job: seconds(known[job]["StartTime"]) for job in promised}
    for job, by_s in promised.items():
        if by_s is not None:
            found.late_s.append(starts[job] - by_s)
            if found.late_s[-1] > WHOLE_S:
                found.faults.append(f"wide job {job} started {found.late_s[-1]:.0f} s after the start planned for it")
    last_s = max(starts.values())
    for job in jobs:
        one = daemon.job(job)
        if one["state"] != "completed":
            found.faults.append(f"job {job} is {one['state']}")
            continue
        ids = [str(subjob["batch_id"]) for subjob in one["subjobs"] if subjob["batch_id"] is not None]
        ran = [known[id] for id in ids if id in known and known[id]["StartTime"] != "Unknown"]
        ran = [told for told in ran if told["JobState"] in ("TIMEOUT", "COMPLETED")]
        spans = sorted((seconds(told["StartTime"]), seconds(told["EndTime"])) for told in ran)
        found.faults += [
            f"job {job} ran twice at once: until {before[1]}, and from {after[0]}"
            for before, after in pairwise(spans)
            if after[0] < before[1]
        ]
        timed_out = sum(told["JobState"] == "TIMEOUT" for told in ran)
        if len(ran) != timed_out + 1:
            found.faults.append(f"job {job} was begun {len(ran)} times, and timed out {timed_out} times")
        found.timed_out += timed_out
        found.sent += len(ids) - 1
        found.in_windows += one["end_s"] <= last_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="the figures as JSON")
    options = parser.parse_args()
    if reason := missing_slurm():
        parser.error(f"a private Slurm cannot be brought up: {reason}")
    print(machine(), flush=True)
    found = play(options.runs, options.rounds, options.seed)
    late = ", ".join(f"{value:+.0f}" for value in found.late_s)
    late += f" ({len(found.late_s)} of {options.rounds} had one)"
    print(
        f"{found.runs} runs: {found.sent} times one was sent into a window, {found.timed_out} timed out there; "
        f"{found.in_windows} were over before the last wide job started\n"
        f"wide jobs started so many seconds after the start planned at first: {late}\nload {os.getloadavg()[0]:.1f}"
    )
    if options.out is not None:
        options.out.write_text(json.dumps(asdict(found), indent=1) + "\n")
    print("\n".join(found.faults) or "all that is checked holds")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
