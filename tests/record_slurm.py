"""Records what the Slurm on PATH answers to each command whose answer EJB reads: `python -m tests.record_slurm`.

A cluster of scripts/cluster with accounting gets a fixed handful of jobs, which end in each of the ways there are. What
the commands answer goes to tests/recorded/slurm/VERSION/, with the host, its folders, its ports and the time made
neutral. Of the site's settings those are kept that EJB reads. Run as root, so that the user is the same in all of them.
It takes a minute or two, and needs MariaDB.

    PATH=DIR/bin:DIR/sbin:$PATH python -m tests.record_slurm    the Slurm that was installed into DIR
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from ejbd.accounting.sacct import COMMAND
from ejbd.batch.slurm import associations, charging, commands, drift, mpi, privacy, siterules
from ejbd.batch.slurm.listing import Squeue
from ejbd.batch.slurm.nodes import ShowNodes
from ejbd.batch.slurm.reservations import ShowReservations
from tests.integration.slurm_clusters import SlurmCluster, slurm_cluster

FOLDER = Path(__file__).parent / "recorded" / "slurm"
SEPARATOR = "|qz|"
BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
"""The first second of a recording."""
USER, HOST = "root", "head"
MORE = "AccountingStorageEnforce=associations,limits,qos\nAccountingStoreFlags=job_comment\n"
MORE += "PriorityType=priority/multifactor\nPriorityWeightFairshare=1000\nPriorityWeightAge=10\n"
SLEEP = "sleep 600"


class _Command(Protocol):
    def argv(self) -> list[str]: ...


REFUSED: Mapping[str, Sequence[str]] = {
    "partition": ("sbatch", "--partition=nowhere", "--wrap=true"),
    "account": ("sbatch", "--account=nobody", "--wrap=true"),
    "qos": ("sbatch", "--qos=none", "--wrap=true"),
    "nodes": ("sbatch", "--nodes=400", "--wrap=true"),
    "nodes, asked": ("sbatch", "--test-only", "--nodes=400", "--wrap=true"),
    "processors": ("sbatch", "--ntasks=4000", "--wrap=true"),
    "memory": ("sbatch", "--mem=900G", "--wrap=true"),
    "feature": ("sbatch", "--constraint=gold", "--wrap=true"),
    "device": ("sbatch", "--gres=gpu:64", "--wrap=true"),
    "walltime": ("sbatch", "--partition=short", "--time=10", "--wrap=true"),
    "reservation": ("sbatch", "--reservation=none", "--wrap=true"),
    "submissions": ("sbatch", "--account=narrow", "--wrap=true"),
    "cancel unknown": ("scancel", "999999"),
    "cancel ended": ("scancel", "{ended}"),
    "list unknown": ("squeue", "--noheader", "--jobs=999999"),
    "column": ("squeue", "--noheader", "--Format=NoSuchColumn"),
    "column of accounts": ("sacct", "--noheader", "--parsable2", "--format=NoSuchColumn"),
    "column of QOS": ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=NoSuchColumn"),
    "release unknown": ("scontrol", "release", "999999"),
    "longer than allowed": ("scontrol", "update", "JobId={ended}", "TimeLimit=10"),
    "begin of running": ("scontrol", "update", "JobId={running}", "StartTime=now"),
}
"""What fails, by a name of its own; `{NAME}` is the id of that job."""


def main() -> int:
    """Record one version."""
    if os.geteuid() != 0:
        print("record_slurm: run it as root: recordings are of root's jobs", file=sys.stderr)
        return 2
    # In UTC and without what steers Slurm's commands, as the daemon asks.
    with slurm_cluster(3, 6, "--profile=acct", "--exclusive", "--features=ib,fast", "--gpus=2", more=MORE) as cluster:
        began = datetime.now(UTC).replace(microsecond=0)
        ids = _play(cluster)
        answers = _ask(cluster, ids)
        refused = {name: _refusal(cluster, argv, ids) for name, argv in REFUSED.items()}
        refused["controller away"] = _without_controller(cluster)
        neutral = _Neutral(cluster, began)
    folder = FOLDER / ".".join(answers["version"].split()[1].split(".")[:2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in answers.items():
        (folder / f"{name}.txt").write_text(neutral.text(text))
    lines = (json.dumps([name, *refusal]) for name, refusal in refused.items())
    (folder / "refusals.jsonl").write_text(neutral.text("\n".join(lines)) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder.relative_to(FOLDER.parents[2])}: {len(answers) + 1} files, {size} bytes")
    return 0


def tag_of(name: str) -> str:
    """As EJB would have put it into the job's comment."""
    return f"ejb-{name.encode().hex()[:32]}.0"


def _play(cluster: SlurmCluster) -> dict[str, str]:
    """Submit the jobs, and wait until each is as its name says; the ids by these names."""
    for words in (
        ("add", "qos", "ejb", "UsageFactor=0"),
        ("add", "account", "ours", "GrpJobs=40"),
        ("add", "account", "narrow"),
        *(("add", "user", USER, f"account={name}") for name in ("ours", "narrow")),
        ("modify", "user", USER, "set", "qos+=ejb", "defaultaccount=ours"),
        ("modify", "user", USER, "where", "account=narrow", "set", "GrpTRES=cpu=1", "MaxSubmitJobs=1", "MaxWall=60"),
        ("modify", "qos", "ejb", "set", "MaxTRESPerUser=cpu=64", "MaxJobsPerUser=50"),
    ):
        cluster.run("sacctmgr", "-i", *words)
    cluster.until(lambda: _takes(cluster), "the controller does not know the accounts")
    cluster.run("scontrol", "create", "partition=short", "Nodes=n[1-3]", "MaxTime=5", "State=DOWN")
    later = ("StartTime=now+2days", "Duration=60")
    cluster.run("scontrol", "create", "reservation=upkeep", *later, f"Users={USER}", "Flags=MAINT", "Nodes=n1")
    cluster.run("scontrol", "create", "reservation=class", *later, "Accounts=ours", "CoreCnt=2", "Nodes=n2")

    def submit(name: str, *options: str, script: str = SLEEP) -> str:
        words = (f"--job-name={name}", f"--comment=of {name} {tag_of(name)}", "--time=30", "--chdir=/", *options)
        return cluster.sbatch(*words, script=script)

    ids = {
        "ended": submit("ended", script="sleep 1"),
        "failed": submit("failed", script="sleep 1; exit 7"),
        "killed": submit("killed", script="sleep 1; kill -9 $$"),
        "lost": submit("lost", "--nodelist=n3", "--ntasks=6"),
        "late": submit("late", "--time=1"),
        "stopped": submit("stopped"),
    }
    wanted = {"ended": "COMPLETED", "failed": "FAILED", "killed": "FAILED", "lost": "RUNNING", "late": "RUNNING"}
    _until(cluster, ids, wanted | {"stopped": "RUNNING"})
    cluster.run("scancel", ids["stopped"])
    cluster.run("scontrol", "update", f"JobId={ids['late']}", "EndTime=now+1")
    os.kill(cluster.pids()["n3"], signal.SIGKILL)
    _until(cluster, ids, {"stopped": "CANCELLED", "lost": "NODE_FAIL", "late": "TIMEOUT"})
    cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=a b|c State=IDLE NodeName=n9")
    ids["running"] = submit("running", "--ntasks=2", "--gres=gpu:1")
    ids["odd\n9|RUNNING|0|batch"] = submit("odd\n9|RUNNING|0|batch", "--qos=ejb")
    ids["array"] = submit("array", "--array=1-4%1")
    ids["suspended"] = submit("suspended", "--ntasks=1")
    _until(cluster, ids, dict.fromkeys(("running", "suspended"), "RUNNING"))
    cluster.run("scontrol", "suspend", ids["suspended"])
    ids["held"] = submit("held", "--hold")
    ids["behind"] = submit("behind", f"--dependency=afterok:{ids['running']}")
    ids["never"] = submit("never", f"--dependency=afterok:{ids['failed']}")
    ids["later"] = submit("later", "--begin=now+1day")
    ids["limited"] = submit("limited", "--account=narrow", "--ntasks=2")
    ids["whole"] = submit("whole", "--partition=whole", "--ntasks=6")
    ids["two"] = submit("two", "--partition=batch,short", "--time=4", "--ntasks=6")
    ids["withdrawn"] = submit("withdrawn", "--hold")
    cluster.run("scancel", ids["withdrawn"])
    _until(cluster, ids, {"suspended": "SUSPENDED", "withdrawn": "CANCELLED"})

    def planned() -> bool:
        rows = cluster.run("squeue", "--noheader", "--Format=Name:|,Reason:|,SchedNodes:|").splitlines()
        reasons = dict(row.split("|")[:2] for row in rows if row.count("|") == 3)
        waits = {"limited": "Assoc", "whole": "Resources", "two": "", "behind": "Dependency", "never": "Dependency"}
        nodes = any(row.startswith("whole|") and "n1" in row for row in rows)
        return nodes and all(reasons.get(name, "None").startswith(why) for name, why in waits.items())

    cluster.until(planned, "the waiting jobs have no reasons and no planned nodes", 60)
    ended = ("ended", "failed", "killed", "lost", "late", "stopped", "withdrawn")

    def accounted() -> bool:
        rows = cluster.run(*commands.Sacct([ids[name] for name in ended], SEPARATOR).argv())
        return "Unknown" not in rows and "RUNNING" in cluster.run("sacct", "-nXo", "State", "-j", ids["running"])

    cluster.until(accounted, "the accounts do not know what has run and ended")
    return ids


def _takes(cluster: SlurmCluster) -> bool:
    """Whether the controller knows the accounts and the QOS by now."""
    asked = ("--account=ours", "--account=narrow", "--qos=ejb")
    return all(_try(cluster, "sbatch", "--test-only", word, "--wrap=true").returncode == 0 for word in asked)


def _until(cluster: SlurmCluster, ids: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    def there() -> bool:
        states = cluster.states()
        return all(states.get(ids[name]) == state for name, state in wanted.items())

    cluster.until(there, f"not all jobs came to be {dict(wanted)}")


def _ask(cluster: SlurmCluster, ids: Mapping[str, str]) -> dict[str, str]:
    """What is read of Slurm, as it is asked for; by the name of its file."""
    nodes = ShowNodes()
    answers = {
        "version": cluster.run("sbatch", "--version"),
        "nodes": cluster.run(*nodes.argv(), stdin=nodes.stdin),
        "job": cluster.run("scontrol", "show", "job", ids["running"]),
        "sinfo": cluster.run("sinfo", "--noheader", "--format=%P %C %c"),
        "history": cluster.run(*COMMAND.split(), "-j", ",".join([*ids.values()][:6])),
    }
    asked: dict[str, _Command] = {
        "squeue": Squeue(SEPARATOR),
        "dependencies": commands.Dependencies(SEPARATOR),
        "config": commands.ShowConfig(),
        "reservations": ShowReservations(),
        "sacct": commands.Sacct([id for name, id in ids.items() if name != "array"], SEPARATOR),
        "assoc_mgr": associations.ShowAssociations(USER),
        "qos": associations.ShowQos(),
        "user": charging.ShowUser(USER),
        "level": privacy.ShowLevel(USER),
        "all_associations": siterules.show_associations(20),
        "all_qos": siterules.show_qos(20),
        "mpi": mpi.ListMpi(),
    }
    answers |= {name: _try(cluster, *command.argv()).stdout for name, command in asked.items()}
    kept = [line for line in answers["config"].splitlines() if line.partition("=")[0].strip() in drift.SETTINGS]
    return answers | {"config": "\n".join(kept) + "\n"}


def _try(cluster: SlurmCluster, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env=cluster.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
    )


def _refusal(cluster: SlurmCluster, argv: Sequence[str], ids: Mapping[str, str]) -> tuple[int, str]:
    """Exit code, and what was said."""
    words = [re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], word) for word in argv]
    done = _try(cluster, *words)
    return done.returncode, done.stderr


def _without_controller(cluster: SlurmCluster) -> tuple[int, str]:
    os.kill(cluster.pids()["slurmctld"], signal.SIGKILL)
    time.sleep(0.5)
    return _refusal(cluster, ("sbatch", "--wrap=true"), {})


class _Neutral:
    """Takes this machine and this moment out of a text."""

    _TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
    _REST = (
        (re.compile(r"(CPULoad=)\S+"), r"\g<1>0.10"),
        (re.compile(r"(FreeMem=)\S+"), r"\g<1>1000"),
        (re.compile(r"(OS=)Linux .*?(?= [A-Z][A-Za-z]+=)"), r"\g<1>Linux 6.1.0"),
        (re.compile(r"(Port=)[0-9]+"), r"\g<1>20100"),
        (re.compile(r"(AllocNode:Sid=)\S+"), r"\g<1>N/A"),
        (re.compile(r",(?:mem|energy|billing|fs/disk|vmem|pages)=N\([0-9]+\)"), ""),  # to be short
        (re.compile(r"^ {4,}(?:[A-Za-z]+= *|Comment=\(null\)|PreemptMode=OFF|Priority=0)\n", re.MULTILINE), ""),
    )

    def __init__(self, cluster: SlurmCluster, began: datetime) -> None:
        self._later = began - BEGINS
        self._words = ((str(cluster.directory), "/cluster"), (socket.gethostname().split(".")[0], HOST))

    def text(self, text: str) -> str:
        for old, new in self._words:
            text = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", new, text)
        for pattern, word in self._REST:
            text = pattern.sub(word, text)
        return self._TIME.sub(self._moved, text)

    def _moved(self, found: re.Match[str]) -> str:
        moment = datetime.fromisoformat(found[0] + "+00:00") - timedelta(seconds=self._later.total_seconds())
        return moment.strftime("%Y-%m-%dT%H:%M:%S")


if __name__ == "__main__":
    sys.exit(main())
