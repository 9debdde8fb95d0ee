#!/usr/bin/env python3
"""What a subjob costs the place of its J0 under Slurm's fair share, and what a QOS with UsageFactor=0 cures of that.

    benchmarks/fair_share.py

A private Slurm of 8 x 4 with `priority/multifactor`, equal shares, and nothing else in the priority. A job of a third
account holds all but four processors. J0 of one account waits for all of them, and behind it a rival of another account
does. Then four processors are used for a while by J0's account: by no subjob, by one of the same QOS, and by one of a
QOS with UsageFactor=0. Told are the two priorities at the end, and which of the two would go first. About eight
minutes.
"""

from __future__ import annotations

import argparse
import time

from harness import machine
from tests.fakes.me import ME
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

FAIR = (
    "PriorityType=priority/multifactor\nPriorityWeightFairshare=100000\nPriorityCalcPeriod=1\n"
    "PriorityFlags=NO_FAIR_TREE\nAccountingStorageEnforce=associations,limits,qos\n"
)
RECKONED_S = 135.0  # Slurm reckons usage once a minute, and priorities by that of the minute before
ACCOUNTS = ("ours", "rivals", "others")


def priority(cluster: SlurmCluster, id: str) -> int:
    return int(cluster.run("squeue", "--noheader", "--format=%Q", f"--jobs={id}").strip())


def play(cluster: SlurmCluster, subjob: tuple[str, ...] | None) -> tuple[int, int]:
    """Priorities of J0 and of the rival once the subjob has run for a while."""
    ids = [cluster.sbatch("-n28", "-t30", "--account=others", script="sleep 1000")]
    cluster.until(lambda: cluster.states()[ids[0]] == "RUNNING", "it does not run")
    j0 = cluster.sbatch("-n32", "-t5", "--account=ours", script="sleep 1")
    rival = cluster.sbatch("-n32", "-t5", "--account=rivals", script="sleep 1")
    if subjob is not None:
        cluster.sbatch("-n4", "-t3", "--account=ours", *subjob, script="sleep 1000")
    time.sleep(RECKONED_S)
    found = priority(cluster, j0), priority(cluster, rival)
    cluster.empty()
    return found


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    if reason := missing_slurm(accounting=True):
        print(f"cannot be measured here: {reason}")
        return 2
    print(machine())
    print("\n| subjob | J0 | rival | goes first |\n| --- | ---: | ---: | --- |")
    with slurm_cluster(8, 4, "--profile=acct", more=FAIR) as cluster:
        cluster.run("sacctmgr", "-i", "add", "qos", "ejb", "UsageFactor=0")
        for account in ACCOUNTS:
            cluster.run("sacctmgr", "-i", "add", "account", account)
            cluster.run("sacctmgr", "-i", "add", "user", ME.user, f"account={account}")
            cluster.run("sacctmgr", "-i", "modify", "user", ME.user, "where", f"account={account}", "set", "qos+=ejb")
        plays = {"none": None, "QOS ejb, UsageFactor=0": ("--qos=ejb",), "J0's QOS": ()}
        for name, options in plays.items():  # what charges comes last: it would count in the others
            own, other = play(cluster, options)
            first = "J0" if own >= other else "the rival"
            print(f"| {name} | {own} | {other} | {first} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
