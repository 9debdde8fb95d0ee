"""A workflow of four stages on a real Slurm of 8 x 4: 4, 16, 4 and 16 processors, beside the same in plain bash."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.client.client import Client
from tests.acceptance.workflows import working
from tests.fakes.daemon import until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("journey-slurm")]

NARROW_S = 15
PREPARE = f"for i in $(seq 16); do echo $((i * i)) > in.$i; done; sleep {NARROW_S}"
SQUARE = "i=$((RANK + 1)); echo $(($(cat in.$i) * 3)) > mid.$i"
GATHER = f"cat mid.* | awk '{{s += $1}} END {{print s}}' > sum; sleep {NARROW_S}"
SPREAD = "echo $(($(cat sum) + RANK)) > out.$RANK"
PLAN = f"""\
workflow:
  name: four
  stages:
    prepare: {{tasks: 4, walltime: 2, outputs: ['in.*'], command: "{PREPARE}"}}
    square: {{tasks: 16, walltime: 2, command: "srun sh -c 'RANK=$SLURM_PROCID; {SQUARE}'"}}
    gather: {{tasks: 4, walltime: 2, command: "{GATHER}"}}
    spread:
      tasks: 16
      walltime: 2
      retries: 1
      command: |
        [ "$EJB_ATTEMPT" = 2 ] || exit 3
        srun sh -c 'RANK=$SLURM_PROCID; {SPREAD}'
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        yield cluster


# The same work as launches of one script, each with its own width and time.
STAGED = f"""\
#!/bin/bash -e
#SBATCH -n 16 -t 5
#EJB stages
export RANK
srun -n 4 -t 2 sh -c '[ "$SLURM_PROCID" != 0 ] || {{ {PREPARE}; }}'
srun sh -c 'RANK=$SLURM_PROCID; {SQUARE}'
srun -n 4 -t 0:05 sleep 60 || echo "ended with $?"
{GATHER}
srun sh -c 'RANK=$SLURM_PROCID; {SPREAD}'
"""


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for kind in ("in.*", "mid.*", "sum", "out.*") for path in folder.glob(kind)}


def in_bash(folder: Path) -> dict[str, str]:
    """The same commands without a batch system."""
    folder.mkdir()
    ranks = "for RANK in $(seq 0 15); do {}; done".format
    lines = [PREPARE, ranks(SQUARE), GATHER, ranks(SPREAD)]
    script = "\n".join(lines).replace(f"sleep {NARROW_S}", "true")
    subprocess.run(["bash", "-e"], input=script, text=True, cwd=folder, check=True, timeout=180)
    return files(folder)


def test_stages_hold_what_they_need_and_make_what_bash_makes(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = in_bash(tmp_path / "bash")
    assert len(wanted) == 49
    environment = {"SLURM_CONF": str(cluster.conf)}
    with working(tmp_path, monkeypatch, 'batch = "slurm"\npoll_s = 1', environment) as (daemon, client, work):
        client.check_workflow(PLAN)
        id = client.submit_workflow(PLAN)["id"]

        def stage(name: str) -> dict[str, str]:
            return next(one for one in client.workflow(id)["stages"] if one["name"] == name)

        until(lambda: stage("square")["state"] == "submitted", "the second stage was not asked for", 90)
        daemon.kill()
        daemon.start()
        ended = ("completed", "failed")
        until(
            lambda: client.workflow("last")["state"] in ended,
            "it did not end",
            180,
            lambda: str(client.workflow(id)),
        )
        found, told = client.workflow(id), client.workflow_report(id)
        assert found["state"] == "completed", found
        assert files(work) == wanted, "as plain bash has it"
        attempts = [(one["stage"], one["tasks"], one["outcome"]) for one in told["attempts"]]
        assert attempts == [
            ("prepare", 4, "completed"),
            ("square", 16, "completed"),
            ("gather", 4, "completed"),
            ("spread", 16, "failed"),
            ("spread", 16, "completed"),
        ]
        print(
            {key: told[key] for key in ("core_h", "one_allocation_core_h", "saved_percent", "turnaround_s", "wait_s")}
        )
        # How much less depends on the machine's load: starts of 16 ranks are held, too.
        assert told["core_h"]["held"] < told["one_allocation_core_h"], told
        launches_of_one_script(client, tmp_path / "staged", wanted)


def launches_of_one_script(client: Client, folder: Path, wanted: dict[str, str], *, ahead: bool = True) -> None:
    """`#EJB stages`: launches hold 4, 16, 4 and 16 processors, and the script one between them.

    `ahead`: the batch system lets the next launch wait for the end of the one before.
    """
    folder.mkdir()
    script = folder / "staged.sh"
    script.write_text(STAGED)
    job = client.submit(script=str(script), chdir=str(folder), output=str(folder / "said"))
    final = job.wait(240)
    assert (final.state, files(folder)) == ("completed", wanted), (final, (folder / "said").read_text())
    assert "ended with 143" in (folder / "said").read_text(), "its time was over"
    over = ("completed", "cancelled")  # the end of a subjob is the planned one until then
    until(lambda: all(s["state"] in over for s in job.status()["subjobs"]), "not all was given back", 60)
    subjobs, launches = job.status()["subjobs"], job.status()["launches"]
    assert [(one["ranks"], one["code"]) for one in launches] == [(4, 0), (16, 0), (4, 143), (16, 0)]
    assert [one["processors"] for one in subjobs] == [1, 3, 15, 3, 15], subjobs
    reasons = [one["data"]["reason"] for one in job.events() if one["kind"] == "decision.evolve"]
    assert len(reasons) == 4 and ("behind the launch before" in reasons[1]) is ahead, reasons
    held_s = sum(one["processor_s"] or 0.0 for one in subjobs)
    rigid_s = 16 * ((subjobs[0]["processor_s"] or 0.0) - sum(one["wait_s"] for one in launches))
    print({"held_processor_s": round(held_s), "one_allocation_processor_s": round(rigid_s)})
    assert held_s < rigid_s


# A stage that is killed by its walltime twice, and one that loses its node while the daemon is away.
HARD = """\
workflow:
  retries: 2
  elastic: off
  stages:
    slow: {tasks: 4, walltime: 1, command: '[ "$EJB_ATTEMPT" = 3 ] || sleep 600'}
    struck: {tasks: 2, walltime: 10, command: 'echo x >> begun; [ "$(wc -l < begun)" -gt 1 ] || sleep 600'}
    last: {tasks: 4, walltime: 2, command: 'touch done'}
"""


@pytest.mark.nightly("tests/unit/test_manager_workflows.py has ends and retries; test_faults_slurm.py a lost node")
def test_walltimes_and_a_lost_node_end_no_workflow(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"SLURM_CONF": str(cluster.conf)}
    with working(tmp_path, monkeypatch, 'batch = "slurm"\npoll_s = 1', environment) as (daemon, client, work):
        id = client.submit_workflow(HARD)["id"]
        until((work / "begun").exists, "its second stage did not begin", 300, lambda: str(client.workflow(id)))
        named = cluster.run("squeue", "-h", "-t", "R", "-o", "%N").split()
        assert len(named) == 1, named
        daemon.kill()
        cluster.run("scontrol", "update", f"nodename={named[0]}", "state=down", "reason=lost")
        try:
            daemon.start()
            ended = ("completed", "failed")
            until(lambda: client.workflow(id)["state"] in ended, "no end", 200, lambda: str(client.workflow(id)))
        finally:
            cluster.run("scontrol", "update", f"nodename={named[0]}", "state=resume", check=False)
        told = client.workflow_report(id)
        outcomes = [(one["stage"], one["outcome"]) for one in told["attempts"]]
        assert told["state"] == "completed" and (work / "done").exists(), told
        assert outcomes.count(("slow", "timeout")) == 2, outcomes
        assert (work / "begun").read_text().count("x") == 2
