"""What a poll of PBS costs with 1, 50 and 500 jobs waiting: commands, CPU time and time.

    python benchmarks/pbs_poll.py BIN

BIN has the commands of a site, such as DIR/bin of `scripts/cluster up DIR --batch openpbs`. The jobs are held, wait in
queue `batch`, and are deleted afterwards. CPU time is that of the adapter and of its commands, not of the server.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from ejbd.batch.pbs import PbsBatch

SIZES = (1, 50, 500)
POLLS = 10


def cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    uses = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def submit(folder: Path) -> str:
    words = ["-h", "-q", "batch", "-l", "walltime=600", "-o", "/dev/null", "-j", "oe"]
    argv = [str(folder / "qsub"), *words]
    done = subprocess.run(argv, input="sleep 1\n", capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


async def polls(folder: Path, waiting: int) -> None:
    batch = PbsBatch(path=f"{folder}:/usr/bin:/bin")
    await batch.observe()  # which asks what the site is, too
    before = {name: count.calls for name, count in batch.command_counts.items()}
    cpu, seconds, jobs = cpu_s(), [], 0
    for _ in range(POLLS):
        begin = time.perf_counter()
        jobs = len((await batch.observe()).jobs)
        seconds.append(time.perf_counter() - begin)
    calls = {name: count.calls - before.get(name, 0) for name, count in batch.command_counts.items()}
    asked = ", ".join(f"{count} {name}" for name, count in calls.items() if count)
    a_poll = (cpu_s() - cpu) / POLLS * 1000
    print(
        f"{waiting} jobs ({jobs} listed): {sum(calls.values()) / POLLS:g} commands a poll ({asked} in {POLLS}), "
        f"{a_poll:.0f} ms of CPU, {statistics.median(seconds) * 1000:.0f} ms"
    )


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/pbs_poll.py BIN")
    folder = Path(sys.argv[1]).resolve()
    ids: list[str] = []
    try:
        for size in SIZES:
            while len(ids) < size:
                ids.append(submit(folder))
            asyncio.run(polls(folder, size))
    finally:
        for start in range(0, len(ids), 100):
            subprocess.run([str(folder / "qdel"), *ids[start : start + 100]], timeout=120, check=False)


if __name__ == "__main__":
    main()
