"""What being elastic costs a job that has no use for it: on an idle Slurm, beside `sbatch`.

    python benchmarks/one_job.py [--ranks 1 8 32 128] [--runs 4] [--poll 5] [--pause 8] [--workers | --short]

The same script is submitted to a private Slurm of 8 x 16, by turns: by `sbatch`, by `ejb submit --elastic=off`, and by
`ejb submit --elastic=on`. Its ranks write down when they begin and when they end, and do nothing else. All processors
are free, so that J0 is all that an elastic job ever gets. Nothing can move it, so that J0 runs it without workers once
the first job has told what nodes offer. With `--workers` it never does (`plain_j0 = "off"`). With `--short` the jobs
can be moved, and ten of them ran before: their runs are known to be short (`plain_below`). The hops: from the start of
the command until Slurm has the batch job; from Slurm's start of it until its last rank runs; from the last rank's end
until its processors are free. What Slurm takes between the first two is Slurm's: it starts jobs in cycles. Aim: by
these three together an elastic job is no more than .3 s later than under `sbatch`. `--pause` seconds go by before each
elastic job. Of these it also tells when each event came: from Slurm's start of J0 on, and those of the end from the
last rank's end on.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ejbd.core.shortruns import FEWEST_RUNS
from harness import ROOT, by_turns, folder, machine, spread
from tests.fakes.daemon import Daemon
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

NODES, PROCESSORS = 8, 16
PATIENCE_S = 90.0
RANK = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int argc, char **argv)
{
    double begun = now();
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", argv[1], getenv("SLURM_PROCID"));
    FILE *stamp = fopen(path, "w");
    return fprintf(stamp, "%.6f %.6f", begun, now()) < 0 || fclose(stamp);
}
"""
QUEUES = """
[queues.default]
elasticity = "on"
min_processors = 1
"""
HOPS = ("until submitted", "start until ranks", "end until free", "all three")


def until(ready: Callable[[], bool], what: str) -> float:
    """When it was first seen to be so, by the machine's clock; raises RuntimeError where it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"in vain: {what}")
        time.sleep(0.01)
    return time.time()


@dataclass(frozen=True, slots=True)
class Taken:
    """One job: seconds of each hop, when Slurm started it, and when its last rank ended."""

    hops_s: list[float]
    started_at_s: float
    over_at_s: float
    id: str


def one(argv: list[str], environment: Mapping[str, str], cluster: SlurmCluster, where: Path, ranks: int) -> Taken:
    """From the start of the command until the job's processors are free."""
    stamps = where / "stamps"
    stamps.mkdir()
    begun = time.time()
    said = subprocess.run(argv, env=environment, cwd=where, check=True, capture_output=True, timeout=60, text=True)
    until(lambda: len(list(stamps.iterdir())) == ranks, f"{ranks} ranks run")
    busy = ("squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING", "--format=%i")
    free = until(lambda: not cluster.run(*busy).strip(), "its processors are free")
    times = [[float(word) for word in stamp.read_text().split()] for stamp in stamps.iterdir()]
    for stamp in stamps.iterdir():
        stamp.unlink()
    stamps.rmdir()
    log = (cluster.directory / "log" / "slurmctld.log").read_text(errors="replace")
    submitted = logged(log, r"_slurm_rpc_submit_batch_job: JobId=") - begun
    begun_s, over_s = logged(log, r"(?:Started|Allocate) JobId="), max(t[1] for t in times)
    started, freed = max(t[0] for t in times) - begun_s, free - over_s
    return Taken([submitted, started, freed, submitted + started + freed], begun_s, over_s, said.stdout.split()[-1])


def events_of(daemon: Daemon, taken: Sequence[Taken]) -> list[str]:
    """When each event came, the median of all jobs: lines. Negative: before that."""
    seen: dict[tuple[bool, str], list[float]] = {}
    for job in taken:
        for event in daemon.events(job.id):
            at_s, kind = float(event["at_s"]), str(event["kind"])
            ends = at_s > job.over_at_s
            seen.setdefault((ends, kind), []).append(at_s - (job.over_at_s if ends else job.started_at_s))
    lines = []
    for ends, what in ((False, "from Slurm's start of J0"), (True, "from the last rank's end")):
        rows = sorted((statistics.median(each), kind) for (after, kind), each in seen.items() if after is ends)
        lines.append(f"  {what}: " + ", ".join(f"{kind} {at_s:+.3f}" for at_s, kind in rows))
    return lines


def logged(log: str, pattern: str) -> float:
    """When Slurm's controller last did something, by its log: milliseconds."""
    return datetime.fromisoformat(re.findall(rf"^\[([^\]]+)\] .*?{pattern}", log, re.MULTILINE)[-1]).timestamp()


def measure(
    cluster: SlurmCluster,
    where: Path,
    ranks: int,
    runs: int,
    poll_s: float,
    pause_s: float,
    workers: bool,
    short: bool,
) -> tuple[dict[str, list[Taken]], list[str]]:
    """Each run, by way of submission; and lines about events of those that were elastic."""
    (where / "rank.c").write_text(RANK)
    subprocess.run(["cc", "-O2", "-o", str(where / "rank"), str(where / "rank.c")], check=True, timeout=60)
    options = f"#SBATCH --ntasks={ranks}\n#SBATCH --time=5\n#SBATCH --output=/dev/null\n"
    (where / "job.sh").write_text(f"#!/bin/bash\n{options}srun {where}/rank {where}/stamps\n")
    queues = f'{QUEUES}plain_j0 = "{"off" if workers else "on"}"\n'
    daemon = Daemon(
        where, f'batch = "slurm"\npoll_s = {poll_s}\n{queues}', {"SLURM_CONF": str(cluster.conf)}, as_program=True
    )
    daemon.start()
    try:
        ejb = str(Path(sys.executable).with_name("ejb"))
        ours = {**os.environ, "EJB_SOCKET": str(daemon.state / "ejbd.sock"), "PYTHONPATH": str(ROOT)}
        ways = {
            "sbatch": (["sbatch", "job.sh"], cluster.environment),
            "passed through": ([ejb, "submit", "--elastic=off", "job.sh"], ours),
            "elastic": ([ejb, "submit", "--elastic=on", *(["--engine=application"] if short else []), "job.sh"], ours),
        }
        for _ in range(FEWEST_RUNS if short else 0):
            one(*ways["elastic"], cluster, where, ranks)

        def hops(way: str, command: tuple[list[str], Mapping[str, str]]) -> Taken:
            if way == "elastic":
                time.sleep(pause_s)
            return one(*command, cluster, where, ranks)

        found = by_turns(ways, runs, hops)
        return found, events_of(daemon, found["elastic"])
    finally:
        daemon.client.close()
        daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--poll", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=8.0)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--workers", action="store_true", help="J0 starts workers for each elastic job")
    which.add_argument("--short", action="store_true", help="elastic jobs can be moved, and are known to be short")
    options = parser.parse_args()
    print(machine())
    if reason := missing_slurm():
        print(f"skipped: {reason}")
        return
    for ranks in options.ranks:
        with slurm_cluster(NODES, PROCESSORS) as cluster, folder() as where:
            found, events = measure(
                cluster, where, ranks, options.runs, options.poll, options.pause, options.workers, options.short
            )
        print(f"\n{ranks} ranks (s)")
        for way, taken in found.items():
            rows = [job.hops_s for job in taken]
            told = "  ".join(f"{hop} {spread(hop_s)}" for hop, hop_s in zip(HOPS, zip(*rows, strict=True), strict=True))
            later = statistics.median(row[-1] for row in rows) - statistics.median(
                job.hops_s[-1] for job in found["sbatch"]
            )
            print(f"{way:<16}{told}  later than sbatch {later:+.2f}")
        print("\n".join(events), flush=True)


if __name__ == "__main__":
    main()
