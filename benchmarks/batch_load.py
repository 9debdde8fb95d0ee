"""Batch commands a poll on a real Slurm, with 1, 50 and 500 elastic jobs waiting.

    python benchmarks/batch_load.py [--waiting 1 50 500] [--polls 10]

A Slurm of 8 x 4 on this machine, full with one job, and the real manager with the real adapter. Counted are the
commands that the adapter ran, by kind, and, independent of it, the RPCs that slurmctld answered (by `sdiag`, reset
before the polls). Submissions are told apart: they happen before the counting. Aim: the same for all, at most 3. Exits
with 1 where that is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from harness import folder, machine, spread
from tests.integration.batch_counts import PollLoad, elastic_manager, occupy, poll_load, submit_until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

MOST = 3


async def measure(cluster: SlurmCluster, where: Path, waiting: list[int], polls: int) -> list[PollLoad]:
    found = []
    async with elastic_manager(cluster, where) as (manager, batch):
        already = 0
        for count in waiting:
            seconds = await submit_until(manager, count, timeout_s=600)
            rate = (count - already) / seconds
            already = count
            one = await poll_load(cluster, manager, batch, count, polls)
            found.append(one)
            print(f"{count} waiting (submitted and taken by sbatch at {rate:.1f}/s), {polls} polls", flush=True)
            print(f"  commands a poll  {a_poll(one.commands, polls)}   in all {one.commands_a_poll:g}")
            print(f"  RPCs a poll      {a_poll(one.rpcs, polls)}")
            print(f"  one poll         {spread([s * 1e3 for s in one.seconds], ' ms')}")
    return found


def a_poll(counts: dict[str, int], polls: int) -> str:
    return ", ".join(f"{name} {count / polls:g}" for name, count in sorted(counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, nargs="+", default=[1, 50, 500])
    parser.add_argument("--polls", type=int, default=10)
    options = parser.parse_args()
    print(machine())
    if reason := missing_slurm():
        print(f"skipped: {reason}")
        return 0
    with slurm_cluster(8, 4) as cluster, folder() as where:
        occupy(cluster)
        found = asyncio.run(measure(cluster, where, sorted(options.waiting), options.polls))
    same = all(one.commands == found[0].commands for one in found)
    few = all(one.commands_a_poll <= MOST for one in found)
    print(f"the same for all: {'yes' if same else 'NO'}; at most {MOST} a poll: {'yes' if few else 'NO'}")
    return 0 if same and few else 1


if __name__ == "__main__":
    sys.exit(main())
