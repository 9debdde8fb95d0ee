"""Table 1 of Utrera et al. redone: jobs of Lublin's model on a live pool, and the same jobs in the simulator.

    python benchmarks/pool_table1.py [--jobs 150] [--load 0.5] [--run 3.0] [--processors 16] [--seed 1]

A real daemon with the embedded cluster as a pool of one node. Each job is examples/paced.c, so that two ranks on a
processor take twice as long (model `linear`). `--run`: their mean run time in seconds, into which the log's is scaled.
What a job costs beside its steps, such as its worker's start, is measured alone first (`--alone` times). It is added to
each run time that the simulator and the load are given. Told are mean wait, response and slowdown of both, and by how
much the simulator's differ.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ejbd.core.malleable.stretching import Model
from ejbd.sim.malleable import run_malleable
from ejbd.sim.models import Model as Made
from ejbd.sim.models import generate
from ejbd.sim.workload import Workload
from ejbd.sim.world import Jobs
from ejbd.studies.malleable.small import parameters
from harness import ROOT, folder, machine
from tests.fakes.daemon import FAST, Daemon

PACE_S = 0.1
UNIT = 100.0  # the simulator's ends are whole seconds
ENDS_S = 600.0
ALONE_STEPS = 20


class Means(NamedTuple):
    wait_s: float
    response_s: float
    slowdown: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--run", type=float, default=3.0)
    parser.add_argument("--processors", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", type=int, default=5)
    asked = parser.parse_args()
    print(machine())
    log = generate(Made.LUBLIN, jobs=asked.jobs, processors=asked.processors, seed=asked.seed, load=asked.load)
    run_s = log.column("run_s") * (asked.run / float(log.column("run_s").mean()))
    steps = np.maximum(1, np.round(run_s / PACE_S)).astype(int)
    widths = log.column("processors").astype(int)
    with folder() as where:
        program = where / "paced"
        subprocess.run(["cc", "-O2", "-o", program, ROOT / "examples" / "paced.c"], check=True, timeout=120)
        toml = FAST.replace("[queues.default]\n", '[queues.default]\npolicy = "fcfs-malleable"\nmin_processors = 1\n')
        shape = f"[local]\nnodes = 1\nprocessors_per_node = {asked.processors}\npool = true\n"
        daemon = Daemon(where, f'batch = "local"\npoll_s = 0.2\nworker_python = "{sys.executable}"\n{toml}\n{shape}')
        daemon.start()
        try:
            alone = [told(daemon, submit(daemon, program, ALONE_STEPS, 2)) for _ in range(asked.alone)]
            extra_s = statistics.median(end - sent for sent, _, end in alone) - ALONE_STEPS * PACE_S
            whole_s = steps * PACE_S + extra_s
            gaps = np.diff(log.column("submit_s"), prepend=log.column("submit_s")[0])
            span_s = float((widths * whole_s).sum()) / (asked.processors * asked.load)
            submit_s = np.cumsum(gaps) * (span_s / float(gaps.sum()))
            print(f"a job costs {extra_s:.2f} s beside its steps; all are submitted within {span_s:.0f} s", flush=True)
            live = played(daemon, program, submit_s, steps, widths, whole_s)
        finally:
            daemon.stop()
            down = [sys.executable, "-m", "ejbd.batch.local", "down", str(daemon.state / "cluster")]
            subprocess.run(down, check=False, timeout=120)
    simulated = of_simulator(submit_s, whole_s, widths, asked.processors)
    errors = [100 * (s / one - 1) if one else 0.0 for s, one in zip(simulated, live, strict=True)]
    for name, one, s, error in zip(Means._fields, live, simulated, errors, strict=True):
        print(f"{name}: live {one:.2f}, simulator {s:.2f} ({error:+.1f} %)")
    print(f"mean error {statistics.mean(map(abs, errors)):.1f} %; {machine()}")


def submit(daemon: Daemon, program: Path, steps: int, ranks: int) -> str:
    words = [str(program), "--steps", str(steps), "--pace", f"{round(1000 * PACE_S)}ms"]
    return daemon.submit(*words, ranks=ranks, time="20:00")


def told(daemon: Daemon, job: str) -> tuple[float, float, float]:
    """When a job was submitted, its processors were given to it, and it ended, once it has."""
    until = time.monotonic() + ENDS_S
    while time.monotonic() < until:
        found = daemon.client.get(f"/v1/jobs/{job}").json()
        if found["end_s"] is not None:
            if found["state"] != "completed":
                raise SystemExit(f"job {job} is {found['state']}: {found['reason']}")
            return found["submit_s"], min(one["start_s"] for one in found["subjobs"]), found["end_s"]
        time.sleep(0.5)
    raise SystemExit(f"job {job} has not ended in {ENDS_S:g} s")


def played(
    daemon: Daemon, program: Path, submit_s: np.ndarray, steps: np.ndarray, widths: np.ndarray, whole_s: np.ndarray
) -> Means:
    """The jobs live, each submitted when its time comes."""
    begin, ids = time.monotonic(), []
    for at, count, width in zip(submit_s, steps, widths, strict=True):
        time.sleep(max(0.0, begin + float(at) - time.monotonic()))
        ids.append(submit(daemon, program, int(count), int(width)))
    times = np.array([told(daemon, job) for job in ids])
    print(f"folded or unfolded {resizes(daemon, ids)} times")
    return means(times[:, 0], times[:, 1], times[:, 2], whole_s)


def resizes(daemon: Daemon, ids: list[str]) -> int:
    return sum(daemon.kinds(job).count("epoch.resized") for job in ids)


def of_simulator(submit_s: np.ndarray, whole_s: np.ndarray, widths: np.ndarray, processors: int) -> Means:
    run = whole_s * UNIT
    jobs = Jobs(submit_s * UNIT, run, run.copy(), widths.astype(np.int64), np.arange(1, len(widths) + 1))
    found = run_malleable(Workload("Lublin", processors, jobs), replace(parameters(), model=Model.LINEAR))
    return means(submit_s, found.start / UNIT, found.end / UNIT, whole_s)


def means(submit_s: np.ndarray, start_s: np.ndarray, end_s: np.ndarray, whole_s: np.ndarray) -> Means:
    response = end_s - submit_s
    return Means(float((start_s - submit_s).mean()), float(response.mean()), float((response / whole_s).mean()))


if __name__ == "__main__":
    main()
