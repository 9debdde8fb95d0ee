"""A job that is longer than its partition lets, on a real Slurm: it is checkpointed and goes on in the next J0."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.client import Client
from tests.acceptance.evolving import PACE, build_paced
from tests.acceptance.journeys import one_copy_only
from tests.fakes.daemon import FAST, Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("journey-slurm")]
STEPS = 260  # of a quarter of a second: longer than one minute, and shorter than two


PLAN = """\
workflow:
  stages:
    long: {{tasks: 4, walltime: 3, engine: application, restartable: on, elastic: on, command: srun {command}}}
    after: {{tasks: 1, walltime: 1, command: 'true'}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        partition = cluster.run("sinfo", "--noheader", "--format=%R").split()[0]
        before = cluster.run("sinfo", "--noheader", f"--partition={partition}", "--format=%l").split()[0]
        cluster.run("scontrol", "update", f"PartitionName={partition}", "MaxTime=1")
        try:
            yield cluster
        finally:
            cluster.run("scontrol", "update", f"PartitionName={partition}", f"MaxTime={before.upper()}")


@pytest.mark.nightly("unit/test_manager_continuing.py has each step; test_kept_place_slurm.py goes on after a time-out")
def test_two_minutes_in_a_partition_of_one(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, result = build_paced(tmp_path), tmp_path / "result"
    words = [str(program), "--steps", str(STEPS), "--pace", PACE, "--result", str(result)]
    toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
    daemon = Daemon(tmp_path, toml, {"SLURM_CONF": str(cluster.conf)})
    daemon.start()
    try:
        job = daemon.submit(*words, overrides={"ntasks": "4", "time": "3", "engine": "application"})
        monkeypatch.chdir(tmp_path)
        with Client(socket=str(daemon.state / "ejbd.sock")) as client:
            flow = client.submit_workflow(PLAN.format(command=" ".join([*words[:-1], str(tmp_path / "staged")])))["id"]
        with one_copy_only(job):
            final = daemon.wait(job, timeout_s=300)
        assert (final["state"], final["exit_code"]) == ("completed", 0), daemon.trace(job)
        expected = [str(program), "--steps", str(STEPS), "--expect", "4"]
        assert result.read_bytes() == subprocess.run(expected, check=True, capture_output=True, timeout=180).stdout
        j0s = [s for s in final["subjobs"] if s["role"] == "placeholder"]
        assert len(j0s) == 2 and j0s[0]["walltime_s"] == 60.0, daemon.trace(job)
        launched = [e["data"]["restart_from"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert launched == [None, 1]
        a_stage_goes_on_so_too(daemon, flow)
        assert (tmp_path / "staged").read_bytes() == result.read_bytes()
        assert "subjob.adopted" in {e["kind"] for e in daemon.events(job)}, "it was queued before the first one ended"
    finally:
        daemon.stop()
        cluster.empty()


def a_stage_goes_on_so_too(daemon: Daemon, flow: str) -> None:
    """A stage across its queue's limit is one attempt, in two place holders; then comes the next stage."""
    with Client(socket=str(daemon.state / "ejbd.sock")) as client:
        ended = ("completed", "failed")
        until(
            lambda: client.workflow(flow)["state"] in ended, "it did not end", 200, lambda: str(client.workflow(flow))
        )
        assert client.workflow(flow)["state"] == "completed", client.workflow(flow)
        first, second = client.workflow_report(flow)["attempts"]
        assert [first["outcome"], second["outcome"]] == ["completed", "completed"]
    held = [s for s in daemon.job(first["job"])["subjobs"] if s["role"] == "placeholder" and s["start_s"] is not None]
    assert len(held) == 2 and all(s["walltime_s"] == 60.0 for s in held), daemon.trace(first["job"])()
