"""An evolving job on a real Slurm of 8 x 4: 4, 12 and 4 processors, its increment queued before it begins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import one_copy_only
from tests.acceptance.test_evolving_local import all_ended, processor_seconds
from tests.fakes.daemon import FAST, ROOT, Daemon
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("journey-slurm")]

STEPS = 90
PACE = "250ms"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("paced") / "paced"
    subprocess.run(["cc", "-O2", "-o", made, ROOT / "examples" / "paced.c"], check=True)
    return made


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Daemon]:
    toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
    made = Daemon(tmp_path, toml, {"SLURM_CONF": str(cluster.conf)})
    made.start()
    yield made
    made.stop()


def expected(paced: Path) -> bytes:
    argv = [str(paced), "--steps", str(STEPS), "--expect", "12"]
    return subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout


def submit(daemon: Daemon, paced: Path, result: Path, profile: str, **more: Any) -> str:
    command = [str(paced), "--steps", str(STEPS), "--pace", PACE, "--result", str(result)]
    return daemon.submit(*command, overrides={"profile": profile, "ntasks": None, "time": "10"} | more)


def test_holds_4_then_12_then_4_and_computes_the_same(daemon: Daemon, paced: Path, tmp_path: Path) -> None:
    result = tmp_path / "result"
    job = submit(daemon, paced, result, "4:12s,12:12s,4:5m", engine="application")
    with one_copy_only(job):
        daemon.wait_event(job, "epoch.running", 1)
        increment = daemon.job(job)["subjobs"][1]
        assert increment["processors"] == 8
        told = [(e["kind"], e["subjob"]) for e in daemon.events(job)]
        queued = told.index(("subjob.pending", increment["id"]))
        assert queued < [kind for kind, _ in told].index("epoch.launching"), "it was queued before the job began"
        final = daemon.wait(job, timeout_s=150)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    assert result.read_bytes() == expected(paced)
    epochs = [e["data"]["processors"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
    assert epochs == [4, 12, 4]
    used, peak = processor_seconds(all_ended(daemon, job))
    print(f"{used:.0f} processor-seconds were held; the peak throughout would have been {peak:.0f}")
    assert used < peak
