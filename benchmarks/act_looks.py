"""What the look before each act on batch jobs costs, beside the act itself, with many J0s in Slurm's queue.

    python benchmarks/act_looks.py [--waiting 100 1000] [--rounds 5]

A Slurm of 8 x 4 on this machine, with so many jobs that are held. Each bears a tag as a J0 does. By the adapter itself
one of them is held again, its time limit is changed, and one and a hundred are cancelled (others come in their place).
Before each act they are looked at (`squeue --jobs`), as the executor does. Told are medians of time by the clock, and
means of the controller's CPU time. Of one job squeue asks the controller about that job; of several it asks about all.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator

import psutil

from ejbd.batch.base import Identity
from ejbd.batch.slurm import SlurmBatch
from harness import leave_nothing_behind, machine
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

MANY, TIMES = 100, 20


def submit(cluster: SlurmCluster, numbers: Iterator[int], count: int) -> list[str]:
    """Jobs that are held, each with a tag of its own."""
    options = ("--hold", "--ntasks=1", "--time=10")
    return [cluster.sbatch(*options, f"--comment=ejb-a{next(numbers)}.0", script="true") for _ in range(count)]


class Meter:
    """Seconds by the clock, and of the controller's CPU, by what was done."""

    def __init__(self, controller: psutil.Process) -> None:
        self._controller = controller
        self.took: dict[str, list[tuple[float, float]]] = {}

    def _cpu_s(self) -> float:
        return sum(self._controller.cpu_times()[:2])

    async def measure(self, what: str, call: Callable[[], Awaitable[object]], times: int = 1) -> None:
        """CPU time comes in whole ticks: what may be repeated is called so many `times`."""
        cpu_s, begun = self._cpu_s(), time.perf_counter()
        for _ in range(times):
            await call()
        seconds, cpu_s = time.perf_counter() - begun, self._cpu_s() - cpu_s
        self.took.setdefault(what, []).append((seconds / times, cpu_s / times))


async def play(cluster: SlurmCluster, batch: SlurmBatch, ids: list[str], meter: Meter, numbers: Iterator[int]) -> None:
    own = Identity.own()
    one, many = ids[:1], ids[:MANY]
    await meter.measure("look at one", lambda: batch.list_jobs(one), TIMES)
    await meter.measure("hold one", lambda: batch.update(own, one[0], hold=True), TIMES)
    await meter.measure("change one's limit", lambda: batch.update(own, one[0], walltime_s=540.0), TIMES)
    await meter.measure("cancel one", lambda: batch.cancel(own, one))
    await meter.measure(f"look at {MANY}", lambda: batch.list_jobs(many), TIMES)
    await meter.measure(f"cancel {MANY}", lambda: batch.cancel(own, many))
    del ids[:MANY]
    ids += submit(cluster, numbers, MANY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, nargs="+", default=[MANY, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    leave_nothing_behind()
    if reason := missing_slurm():
        raise SystemExit(f"skipped: {reason}")
    numbers = itertools.count(1)
    with slurm_cluster(8, 4) as cluster:
        batch = SlurmBatch(conf=cluster.conf)
        controller = psutil.Process(cluster.pids()["slurmctld"])
        ids: list[str] = []
        for count in sorted(options.waiting):
            ids += submit(cluster, numbers, count - len(ids))
            meter = Meter(controller)
            for _ in range(options.rounds):
                asyncio.run(play(cluster, batch, ids, meter, numbers))
            print(f"{machine()}; {count} jobs in the queue; ms, and of the controller's CPU")
            for what, took in meter.took.items():
                clock_s, cpu_s = statistics.median(row[0] for row in took), statistics.mean(row[1] for row in took)
                print(f"{what:20} {1e3 * clock_s:8.1f} {1e3 * cpu_s:8.1f}", flush=True)


if __name__ == "__main__":
    main()
