#!/usr/bin/env python3
"""What place in Slurm's queue a job keeps that is held, that depends on another, or that may begin only later.

    benchmarks/queue_place.py [--only basic|age|always]

Three private Slurms of one node, one after the other: `priority/basic`; `priority/multifactor` where age alone counts
(its accounts in a private slurmdbd); the same with `PriorityFlags=ACCRUE_ALWAYS`. On each another user's job runs, and
there wait: one that was held at its submission; one that stands by for the running one as EJB has it (`afternotok` and
a begin far ahead); an ordinary one; three more that are kept from beginning once they have waited, by a begin far
ahead, by a dependency, and by a hold; and a last ordinary one. Told are their priorities before, while they are kept,
and after they were let go. About one minute, and five and five.
"""

from __future__ import annotations

import argparse
import time

from harness import machine
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

AGE = "PriorityType=priority/multifactor\nPriorityWeightAge=100000\nPriorityMaxAge=0-1\nPriorityCalcPeriod=1\n"
SITES = {"basic": "", "age": AGE, "always": AGE + "PriorityFlags=ACCRUE_ALWAYS\n"}
RECKONED_S = 65.0  # Slurm reckons priorities once a minute
NAMES = ("held", "stands-by", "ordinary", "begin-later", "depends-later", "held-later", "last")
FAR = "now+1000days"


def priorities(cluster: SlurmCluster) -> dict[str, int]:
    rows = cluster.run("squeue", "--noheader", "--states=PENDING", "--format=%j %Q").splitlines()
    return {name: int(priority) for name, priority in (row.split() for row in rows)}


def play(name: str) -> list[dict[str, int]]:
    options = ("--profile=acct",) if SITES[name] else ()
    pause_s = RECKONED_S if SITES[name] else 3.0
    with slurm_cluster(1, 4, *options, more=SITES[name]) as cluster:
        first = cluster.sbatch("-n4", "-t30", script="sleep 1000")
        cluster.until(lambda: cluster.states()[first] == "RUNNING", "it does not run")
        locks = {"held": ("--hold",), "stands-by": (f"--dependency=afternotok:{first}", f"--begin={FAR}")}
        ids = {
            one: cluster.sbatch("-n4", "-t5", f"--job-name={one}", *locks.get(one, ()), script="sleep 1")
            for one in NAMES
        }
        time.sleep(pause_s)
        found = [priorities(cluster)]
        cluster.run("scontrol", "update", f"JobId={ids['begin-later']}", f"StartTime={FAR}")
        cluster.run("scontrol", "update", f"JobId={ids['depends-later']}", f"Dependency=afternotok:{first}")
        cluster.run("scontrol", "uhold", ids["held-later"])
        time.sleep(pause_s)
        found.append(priorities(cluster))
        for one in ("stands-by", "begin-later"):
            cluster.run("scontrol", "update", f"JobId={ids[one]}", "StartTime=now")
        for one in ("stands-by", "depends-later"):
            cluster.run("scontrol", "update", f"JobId={ids[one]}", "Dependency=")
        cluster.run("scontrol", "release", ids["held"], ids["held-later"])
        time.sleep(pause_s)
        found.append(priorities(cluster))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=tuple(SITES))
    only = parser.parse_args().only
    if reason := missing_slurm(accounting=only != "basic"):
        print(f"cannot be measured here: {reason}")
        return 2
    print(machine())
    for name in (only,) if only else tuple(SITES):
        before, kept, after = play(name)
        print(f"\n| {name} | before | kept | let go |\n| --- | ---: | ---: | ---: |")
        for one in NAMES:
            print(f"| {one} | {before[one]} | {kept[one]} | {after[one]} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
