"""How many times as long do two programs take that are folded together on a pool, each onto half of the processors?

    python benchmarks/pool_pair.py [--seconds 20]

A real daemon with the embedded cluster as a pool of one node, with as many processors as there are CPUs: ranks are
bound. A Jacobi iteration (jacobi.c, MPICH) and examples/paced.c run alone first, each on all processors, then both at
once. The one that ends first is folded all the time. The other is unfolded then, and its stretch is that of the time
before. Aim of the paper's idea: below 1.6; a program that computes all the time takes 2 on a quiet machine, and so does
paced.c. Where others use the CPUs, what runs alone is slowed down as well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from harness import ROOT, folder, machine
from ranks import compile_rank
from tests.fakes.daemon import FAST, Daemon

CPUS = len(os.sched_getaffinity(0))
PACE_S = 0.1
SWEEPS, GRID = 20, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="that each is to take alone, about")
    asked = parser.parse_args()
    if CPUS < 2:
        raise SystemExit("it takes two CPUs")
    print(machine())
    with folder() as where:
        paced = where / "paced"
        subprocess.run(["cc", "-O2", "-o", paced, ROOT / "examples" / "paced.c"], check=True, timeout=120)
        queue = FAST.replace("[queues.default]\n", '[queues.default]\npolicy = "fcfs-malleable"\nmin_processors = 1\n')
        shape = f'[local]\nprocessors_per_node = {CPUS}\npool = true\nnode_names = ["n1"]\nstep = "env"\n'
        daemon = Daemon(where, f'batch = "local"\npoll_s = 0.2\nworker_python = "{sys.executable}"\n{queue}\n{shape}')
        daemon.start()
        try:
            play(daemon, str(compile_rank(where, "jacobi.c")), str(paced), asked.seconds)
        finally:
            daemon.stop()
            down = [sys.executable, "-m", "ejbd.batch.local", "down", str(daemon.state / "cluster")]
            subprocess.run(down, check=False, timeout=120)
    print(machine())


def play(daemon: Daemon, jacobi: str, paced: str, seconds: float) -> None:
    probe = took(daemon, submit(daemon, [jacobi, str(GRID), "200", str(SWEEPS)]))
    steps = max(200, round(200 * seconds / (probe[1] - probe[0])))
    words = {
        "jacobi": [jacobi, str(GRID), str(steps), str(SWEEPS)],
        "paced": [paced, "--steps", str(round(seconds / PACE_S)), "--pace", f"{round(1000 * PACE_S)}ms"],
    }
    alone = {name: took(daemon, submit(daemon, argv)) for name, argv in words.items()}
    whole = {name: end - begin for name, (begin, end) in alone.items()}
    jobs = {name: submit(daemon, argv) for name, argv in words.items()}
    both = {name: took(daemon, job) for name, job in jobs.items()}
    first = min(both, key=lambda name: both[name][1])
    begin_s, until_s = max(begin for begin, _ in both.values()), both[first][1]
    for name, (begin, end) in both.items():
        beside_s = until_s - begin_s
        folded_work_s = whole[name] - (end - begin - beside_s)
        resized = daemon.kinds(jobs[name]).count("epoch.resized")
        print(
            f"{name}: {whole[name]:.1f} s alone, together {end - begin:.1f} s, {beside_s:.1f} s of it side by side. "
            f"Folded it takes {beside_s / folded_work_s:.2f} times as long ({resized} resizes)"
        )


def submit(daemon: Daemon, argv: list[str]) -> str:
    if Path(argv[0]).name == "paced":
        return daemon.submit(*argv, ranks=CPUS, time="20:00")
    return daemon.submit(*argv, ranks=CPUS, time="20:00", overrides={"engine": "none", "mpi": "mpich"})


def took(daemon: Daemon, job: str) -> tuple[float, float]:
    """From when its ranks ran until it had ended (epoch seconds)."""
    found = daemon.wait(job, timeout_s=300)
    if found["state"] != "completed":
        raise SystemExit(f"job {job} is {found['state']}: {found['reason']}")
    return next(e["at_s"] for e in daemon.events(job) if e["kind"] == "epoch.running"), found["end_s"]


if __name__ == "__main__":
    main()
