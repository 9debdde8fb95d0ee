#!/usr/bin/env python3
"""Forty runs with learned walltimes on a real Slurm, and the same forty with their user's own request beside them.

    benchmarks/walltimes.py [--runs 40] [--seed 1] [--out FILE.json] [--only auto|own]

Run times follow a lognormal law, in whole minutes' reach, since Slurm's limits are whole minutes: median 75 s, one in a
hundred beyond 4 minutes; the user asks for 6. Half of the runs are batch scripts that sleep, 1, 2 or 4 processors wide,
and begin again after a time-out; the other half count, are elastic, save what they have counted when asked (engine
`application`), and are resumed. Each of the two ways to ask has a private Slurm and an `ejbd` of its own, at the same
time; earlier runs of the same law, drawn apart, are in the history of both. Both see the same arrivals.

Checked (exit code 1 where one does not hold): the walltimes that Slurm was asked for follow the sequence; what timed
out may go on with the next within a poll; no run asked for more than its user did; every run ended well; what is
resumed counts no unit twice, and none is missing. Told: processor-seconds allocated, by Slurm's own record of jobs, and
response times. About ten minutes.
"""

from __future__ import annotations

import argparse
import getpass
import json
import math
import os
import random
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import folder, machine
from tests.fakes.daemon import Daemon
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

NODES, CPUS = 5, 4
MEDIAN_S, SIGMA = 75.0, 0.5
OWN_S = 360
HISTORY = 60  # runs of each application that are known beforehand
EVERY_S = 5.0  # mean time between arrivals
POLL_S = 2.0
KILL_S = 2.0  # KillWait of the cluster
WHOLE_S = 2.0  # Slurm writes whole seconds: so much may two times of it be off
LONGEST_S = 3000.0
UNIT_S = 0.25
WIDTHS = (1, 2, 4)
NAP = "#!/bin/bash\n#EJB app=nap elastic=off rerunnable\n{more}exec sleep {run_s:.2f}\n"
COUNT = """
import os, signal, sys, time

asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
units, log = int(sys.argv[1]), open(sys.argv[2], "a")
saved = os.path.join(os.environ.get("EJB_RESTART_DIR", ""), "rank-" + os.environ["EJB_RANK"])
done = int(open(saved).read()) if "EJB_RESTART_DIR" in os.environ else 0
begun, first = time.monotonic(), done
while done < units:
    if asked:
        with open(os.path.join(os.environ["EJB_CHECKPOINT_DIR"], "rank-" + os.environ["EJB_RANK"]), "w") as file:
            file.write(str(done))
            file.flush()
            os.fsync(file.fileno())
        sys.exit(85)
    time.sleep(max(0.0, begun + (done + 1 - first) * UNIT - time.monotonic()))
    done += 1
    print(done, file=log, flush=True)
""".replace("UNIT", str(UNIT_S))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run: how long it takes, when it arrives, and how wide it is."""

    at_s: float
    run_s: float
    processors: int
    counts: bool


@dataclass
class Arm:
    """What came of one way to ask."""

    processor_s: float = 0.0
    responses_s: list[float] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)
    sequences: dict[str, list[float]] = field(default_factory=dict)
    resumed: int = 0
    repeated: int = 0
    faults: list[str] = field(default_factory=list)
    makespan_s: float = 0.0


def drawn(chance: random.Random) -> float:
    """A run time of the law; one in 1,500 is cut, so near to the user's request that Slurm's looks would decide."""
    return min(chance.lognormvariate(math.log(MEDIAN_S), SIGMA), OWN_S - 30.0)


def arrivals(runs: int, seed: int) -> list[Wanted]:
    chance = random.Random(seed)
    at_s, found = 0.0, []
    for number in range(runs):
        counts = number % 2 == 1
        width = 1 if counts else WIDTHS[number // 2 % len(WIDTHS)]
        found.append(Wanted(at_s, drawn(chance), width, counts))
        at_s += chance.expovariate(1 / EVERY_S)
    return found


def teach(daemon: Daemon, seed: int) -> None:
    """Earlier runs of the same law."""
    chance = random.Random(seed + 1000)
    rows = [(name, width) for name, widths in (("nap", WIDTHS), ("count", (1,))) for width in widths] * HISTORY
    columns: dict[str, list[Any]] = {
        "user": [getpass.getuser()] * len(rows),
        "application": [name for name, _ in rows],
        "processors": [width for _, width in rows],
        "input_class": [""] * len(rows),
        "requested_s": [float(OWN_S)] * len(rows),
        "outcome": ["completed"] * len(rows),
        "key": list(range(len(rows))),
        "run_s": [drawn(chance) for _ in rows],
        "end_s": [1000.0 + at for at in range(len(rows))],
    }
    daemon.client.post("/v1/history", json=columns).raise_for_status()


def submit(daemon: Daemon, program: Path, number: int, wanted: Wanted, learned: bool) -> str:
    minutes = str(OWN_S // 60)
    if wanted.counts:
        words = (
            sys.executable,
            str(program),
            str(round(wanted.run_s / UNIT_S)),
            str(program.with_name(f"{number}.log")),
        )
        more = {"walltime": "auto" if learned else "own", "app": "count", "elastic": "on"}
        return daemon.submit(*words, ranks=1, time=minutes, overrides=more)
    script = NAP.format(more=f"#EJB walltime={'auto' if learned else 'own'}\n", run_s=wanted.run_s)
    return daemon.submit(ranks=wanted.processors, time=minutes, script=script, overrides={"engine": "none"})


def records(cluster: SlurmCluster) -> dict[str, dict[str, str]]:
    """Slurm's own words of the jobs that have ended, by their numbers."""
    lines = (cluster.directory / "log" / "jobcomp.txt").read_text().splitlines()
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
    return {one["JobId"]: one for one in found}


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def judge(arm: Arm, daemon: Daemon, cluster: SlurmCluster, job: str, wanted: Wanted, log: Path) -> None:
    """What Slurm's record, and the job's, say of one run."""
    found, known = daemon.job(job), records(cluster)
    name = f"job {job} ({'count' if wanted.counts else 'nap'}, {wanted.run_s:.0f} s, {wanted.processors} wide)"
    if found["state"] != "completed":
        arm.faults.append(f"{name} ended as {found['state']}")
        return
    needed = [one for one in found["subjobs"] if one["role"] != "standby"]  # those that stood by for nothing asked, too
    batch = [(one, known[one["batch_id"]]) for one in needed if one["batch_id"] in known]
    ran = [(one, told) for one, told in batch if told["StartTime"] != "Unknown" and one["start_s"] is not None]
    limits = [60.0 * float(told["TimeLimit"]) for _, told in batch]
    arm.processor_s += sum(
        int(told["ProcCnt"]) * (seconds(told["EndTime"]) - seconds(told["StartTime"])) for _, told in ran
    )
    arm.responses_s.append(found["end_s"] - found["submit_s"])
    arm.attempts.append(len(ran))
    if max(limits) > OWN_S:
        arm.faults.append(f"{name} asked Slurm for {max(limits):g} s, its user for {OWN_S} s")
    asked = daemon.explain(job).get("walltimes") or {}
    sequence = asked.get("sequence_s") or [float(OWN_S)]
    arm.sequences[f"{'count' if wanted.counts else 'nap'} {wanted.processors}"] = asked.get("progress_s") or sequence
    events = daemon.events(job)
    again = [event for event in events if event["kind"] == "job.again"]
    let = [event for event in events if event["kind"] == "intent.done" and event["data"]["intent"] == "begin"]
    let_s = {event["subjob"]: event["at_s"] for event in let}
    following = (asked.get("progress_s") or sequence)[1 : 1 + len(again)]
    if [event["data"]["walltime_s"] for event in again] != following:
        arm.faults.append(f"{name} took {[e['data']['walltime_s'] for e in again]}, its sequence is {sequence}")
    if not wanted.counts and limits != sequence[: len(limits)]:
        arm.faults.append(f"{name} asked Slurm for {limits}, its sequence is {sequence}")
    if wanted.counts:
        arm.resumed += len(again)
        counted = [int(line) for line in log.read_text().split()]
        arm.repeated += len(counted) - len(set(counted))
        if set(counted) != set(range(1, round(wanted.run_s / UNIT_S) + 1)):
            arm.faults.append(f"{name} has not counted what there was to count")
    for (_, before), (one, after) in pairwise(batch):
        if before["JobState"] == "TIMEOUT":
            arm.again_s.append(let_s.get(one["id"], seconds(after["SubmitTime"])) - seconds(before["EndTime"]))
    if not wanted.counts and any(told["JobState"] != "TIMEOUT" for _, told in batch[:-1]):
        arm.faults.append(f"{name} was run again after {[told['JobState'] for _, told in batch[:-1]]}")


def play(wants: Sequence[Wanted], seed: int, learned: bool) -> Arm:
    """All runs, one way to ask."""
    arm = Arm()
    toml = f'batch = "slurm"\npoll_s = {POLL_S:g}\nworker_python = "{sys.executable}"\n'
    toml += '[queues.default]\nelasticity = "on"\nmin_processors = 1\nlambda_s = 3\nfirst_checkpoint_s = 0\n'
    toml += "[limits]\nsettle_s = 1\n"
    with folder() as where, slurm_cluster(NODES, CPUS) as cluster:
        program = where / "count.py"
        program.write_text(COUNT)
        daemon = Daemon(where, toml, {"SLURM_CONF": str(cluster.conf)}, as_program=True)
        try:
            daemon.start()
            if daemon.ended():
                raise RuntimeError(f"the daemon did not start: {daemon.log.read_text()}")
            teach(daemon, seed)
            begun = time.monotonic()
            jobs = []
            for number, wanted in enumerate(wants):
                time.sleep(max(0.0, begun + wanted.at_s - time.monotonic()))
                jobs.append(submit(daemon, program, number, wanted, learned))
            open_jobs = set(jobs)
            while open_jobs and time.monotonic() < begun + LONGEST_S:
                time.sleep(2)
                open_jobs = {job for job in open_jobs if daemon.job(job)["end_s"] is None}
            arm.makespan_s = time.monotonic() - begun
            cluster.until(
                lambda: not cluster.run("squeue", "--noheader").strip(), "the last jobs did not leave Slurm", 60
            ) if not open_jobs else None
            for number, (job, wanted) in enumerate(zip(jobs, wants, strict=True)):
                judge(arm, daemon, cluster, job, wanted, where / f"{number}.log")
        finally:
            daemon.client.close()
            daemon.stop()
    late = [value for value in arm.again_s if value > POLL_S + KILL_S + WHOLE_S]
    if late:
        arm.faults.append(f"let go on after {late} s, a poll is {POLL_S:g} s and KillWait {KILL_S:g} s")
    if arm.repeated:
        arm.faults.append(f"{arm.repeated} units of {UNIT_S} s were counted twice")
    return arm


def tell(name: str, arm: Arm) -> None:
    mean = sum(arm.responses_s) / max(1, len(arm.responses_s))
    ordered = sorted(arm.responses_s) or [0.0]
    print(
        f"{name:6} {arm.processor_s:9.0f} {mean:9.0f} {ordered[len(ordered) // 2]:9.0f} {ordered[-1]:9.0f}"
        f" {sum(arm.attempts):9} {arm.makespan_s:9.0f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("auto", "own"), default=None)
    parser.add_argument("--out", type=Path, default=None, help="the figures as JSON")
    options = parser.parse_args()
    if reason := missing_slurm():
        parser.error(f"a private Slurm cannot be brought up: {reason}")
    wants = arrivals(options.runs, options.seed)
    work = sum(one.run_s * one.processors for one in wants)
    print(
        f"{machine()}\n{options.runs} runs, {work:.0f} processor-seconds of work, {NODES * CPUS} processors", flush=True
    )
    ways = [way for way in ("own", "auto") if options.only in (None, way)]
    with ThreadPoolExecutor(len(ways)) as pool:
        arms = dict(zip(ways, pool.map(lambda way: play(wants, options.seed, way == "auto"), ways), strict=True))
    print(f"{'':6} {'processor-s':>9} {'mean':>7} {'median':>9} {'longest':>9} {'starts':>9} {'all (s)':>9}")
    for name, arm in arms.items():
        tell(name, arm)
    if (auto := arms.get("auto")) is not None:
        for application, sequence in sorted(auto.sequences.items()):
            print(f"sequence of {application}: {' '.join(f'{value:g}' for value in sequence)} s")
        told = [round(value, 1) for value in sorted(auto.again_s)]
        print(f"time-out, by Slurm's whole seconds, until the next run may begin: {told} s; poll {POLL_S:g} s")
        print(f"resumed with the next walltime: {auto.resumed}; units counted twice: {auto.repeated}")
    print(f"load {os.getloadavg()[0]:.1f}")
    if options.out is not None:
        options.out.write_text(json.dumps({name: arm.__dict__ for name, arm in arms.items()}, indent=1) + "\n")
    faults = [f"{name}: {fault}" for name, arm in arms.items() for fault in arm.faults]
    print("\n".join(faults) or "all that is checked holds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
