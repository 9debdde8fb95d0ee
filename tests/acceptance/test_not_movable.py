"""Programs that DMTCP cannot move, through the daemon: they fare no worse than they would without an engine.

With commands that behave as DMTCP's on the embedded cluster, with DMTCP itself there and on a real Slurm.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.acceptance.journeys import daemon_on, each_tag_once, nothing_left, ranks_of
from tests.acceptance.sites import LocalSite, SlurmSite
from tests.fakes.daemon import Daemon, until
from tests.fakes.dmtcp_commands import install, set_faults, wrap
from tests.integration.slurm_clusters import missing_slurm, shared_cluster

pytestmark = pytest.mark.xdist_group("dmtcp-faults")
RANKS = 4
FIRST_S = 2.0  # when the first checkpoint is tried

# Counts, and ends when it is told to. `how` says what there is about it that DMTCP does not bring back.
PROGRAM = """
import os, pty, sys, time
folder, how, rank = sys.argv[1], sys.argv[2], os.environ["EJB_RANK"]
if how == "terminal": pty.openpty()
with open(os.path.join(folder, "pid-" + rank), "w") as file: file.write(str(os.getpid()))
count = 0
while not os.path.exists(os.path.join(folder, "end")):
    count += 1
    with open(os.path.join(folder, "count-" + rank + ".new"), "w") as file: file.write(str(count))
    os.replace(os.path.join(folder, "count-" + rank + ".new"), os.path.join(folder, "count-" + rank))
    time.sleep(0.02)
print("rank", rank, "ends", flush=True)
"""


def settings(text: str) -> str:
    return text + f'\n[queues.batch]\nelasticity = "on"\nlambda_s = 3\nfirst_checkpoint_s = {FIRST_S:g}\n'


def submit(daemon: Daemon, folder: Path, how: str, **layout: int) -> str:
    overrides = {"engine": "dmtcp", "mpi": "none", "output": str(folder / "out"), **layout}
    words = (sys.executable, "-c", PROGRAM, str(folder), how)
    return daemon.submit(*words, ranks=RANKS, time="10:00", overrides=overrides)


def count(folder: Path, rank: int) -> int:
    path = folder / f"count-{rank}"
    return int(path.read_text()) if path.exists() else -1


def counting(folder: Path) -> None:
    before = {rank: count(folder, rank) for rank in range(RANKS)}
    until(lambda: all(count(folder, rank) != n for rank, n in before.items()), "a rank does not count", 60)


def ends_well(daemon: Daemon, site: LocalSite | SlurmSite, folder: Path, job: str) -> None:
    counting(folder)
    (folder / "end").touch()
    final = daemon.wait(job)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    assert {f"rank {rank} ends" for rank in range(RANKS)} <= set((folder / "out").read_text().splitlines())
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)
    (folder / "end").unlink()


def launched_by(daemon: Daemon, job: str) -> list[int | None]:
    return [e["data"]["restart_from"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]


@pytest.mark.nightly("unit/test_manager_movability.py has first checkpoints that fail")
@pytest.mark.parametrize("real", ["fake", pytest.param("real", marks=pytest.mark.dmtcp)])
def test_a_first_checkpoint_that_never_completes_costs_the_first_seconds_once(
    real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program was killed, begun from its start and killed again, until the job had failed."""
    if real == "real" and shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    bin = wrap(tmp_path / "dmtcp") if real == "real" else install(tmp_path / "dmtcp")
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    if real == "real":  # one thread that no signal reaches any more: the checkpoint waits for it
        script = bin / "before-checkpoint"
        script.write_text(f"#!/bin/sh\nkill -STOP $(cat '{tmp_path}/real-pid')\n")
        script.chmod(0o700)
    else:
        set_faults(bin, **{"rank-1": "hang"})
    site = LocalSite(tmp_path, settings=settings(""))
    with daemon_on(site, tmp_path, checkpoint_timeout_s=8) as daemon:
        job = submit(daemon, tmp_path, "nothing")
        daemon.wait_event(job, "epoch.running")
        counting(tmp_path)
        if real == "real":
            (tmp_path / "real-pid").write_text(str(next(pid for pid, rank in ranks_of(job).items() if rank == 1)))
        daemon.wait_event(job, "job.not-movable", timeout_s=180)
        daemon.wait_event(job, "epoch.running", 2, timeout_s=60)
        site.more()  # it would grow onto this if it could
        counting(tmp_path)
        told = daemon.explain(job)["movable"]
        assert told["movable"] is False and "did not complete: no checkpoint in time" in told["why"]
        ends_well(daemon, site, tmp_path, job)
        assert launched_by(daemon, job) == [None, None] and daemon.kinds(job).count("decision.checkpoint") == 1
        assert "decision.expand" not in daemon.kinds(job)

        job = submit(daemon, tmp_path, "nothing")
        daemon.wait_event(job, "epoch.running")
        assert daemon.explain(job)["movable"]["movable"] is False, "its next job is known from the beginning"
        ends_well(daemon, site, tmp_path, job)
        assert launched_by(daemon, job) == [None] and "job.not-movable" not in daemon.kinds(job)


@pytest.mark.slurm
@pytest.mark.dmtcp
def test_on_a_real_slurm_one_is_moved_early_and_one_that_cannot_be_stays_and_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(4, 2) as cluster:
        site = SlurmSite(cluster, tmp_path, settings=settings(f'listen = "{cluster.controller_address}:0"\n'))
        with daemon_on(site, tmp_path) as daemon:
            cannot = submit(daemon, tmp_path, "terminal", **site.layout)
            daemon.wait_event(cannot, "job.not-movable", timeout_s=60)
            site.more()
            told = daemon.explain(cannot)["movable"]
            assert told["movable"] is False and "a pseudo-terminal of its own" in told["why"]
            ends_well(daemon, site, tmp_path, cannot)
            assert launched_by(daemon, cannot) in ([None], [None, None])
            assert not {"decision.checkpoint", "decision.expand"} & set(daemon.kinds(cannot))

            (tmp_path / "other").mkdir()
            program = tmp_path / "other" / "counter.py"
            program.write_text(PROGRAM)
            overrides = {"engine": "dmtcp", "mpi": "none", "output": str(tmp_path / "out"), **site.layout}
            words = (sys.executable, str(program), str(tmp_path), "nothing")
            can = daemon.submit(*words, ranks=RANKS, time="10:00", overrides=overrides)
            daemon.wait_event(can, "epoch.running", 2, timeout_s=60)
            assert daemon.explain(can)["movable"]["movable"] is True
            ends_well(daemon, site, tmp_path, can)
            assert "epoch.failed" not in daemon.kinds(can)
