"""An evolving job on a real Slurm of 8 x 4: 4, 12 and 4 processors, its increment queued before it begins."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.client import Client
from tests.acceptance.elastic import asks_from_inside, is_told_in_time
from tests.acceptance.evolving import Paced, build_paced, peaks_interlock
from tests.acceptance.journeys import one_copy_only
from tests.acceptance.test_evolving_local import all_ended, processor_seconds
from tests.fakes.daemon import FAST, Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

ALL = pytest.mark.skipif(
    os.environ.get("EJB_TEST_EVOLVING") != "all", reason="half a minute to two each: EJB_TEST_EVOLVING=all runs them"
)
pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("journey-slurm")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_paced(tmp_path_factory.mktemp("paced"))


@pytest.fixture
def paced(cluster: SlurmCluster, program: Path, tmp_path: Path) -> Iterator[Paced]:
    toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST.replace(
        "[limits]\n", "[limits]\ngive_back_grace_s = 15\n"
    )
    daemon = Daemon(tmp_path, toml, {"SLURM_CONF": str(cluster.conf)})
    daemon.start()
    yield Paced(daemon, program, tmp_path)
    daemon.stop()
    cluster.empty()


@pytest.mark.nightly("unit/test_manager_evolving.py has 4, 12, 4; the one that asks from inside has them here")
def test_holds_4_then_12_then_4_and_computes_the_same(paced: Paced) -> None:
    daemon = paced.daemon
    job = paced.submit("result", "4:12s,12:8s,4:5m")
    with one_copy_only(job):
        daemon.wait_event(job, "epoch.running", 1)
        increment = daemon.job(job)["subjobs"][1]
        assert increment["processors"] == 8
        told = [(e["kind"], e["subjob"]) for e in daemon.events(job)]
        queued = told.index(("subjob.pending", increment["id"]))
        assert queued < [kind for kind, _ in told].index("epoch.launching"), "it was queued before the job began"
        paced.ended_well("result", job)
    assert paced.epochs(job) == [4, 12, 4]
    used, peak = processor_seconds(all_ended(daemon, job))
    print(f"{used:.0f} processor-seconds were held; the peak throughout would have been {peak:.0f}")
    assert used < peak


@pytest.mark.nightly("unit/test_manager_evolving.py has both on the fake world")
def test_a_late_increment_is_waited_for_and_a_tail_is_replaced(
    paced: Paced, cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Others take all that is left before the increment may begin: its step begins once they have ended. It was to
    last for minutes, and is over at once where the tail is replaced."""
    daemon, end = paced.daemon, tmp_path / "end"
    job = paced.submit("result", "4:8s,12:4m")
    daemon.wait_event(job, "epoch.running", 1)
    script = f"#!/bin/sh\nuntil [ -e {end} ]; do sleep 0.3; done\n"
    other = cluster.sbatch("-N", "7", "-n", "28", "-t", "5", "-o", "/dev/null", script=script)
    cluster.until(lambda: cluster.states().get(other) == "RUNNING", "the others did not start")
    increment = daemon.job(job)["subjobs"][1]["id"]
    planned_s = daemon.explain(job)["planned"][1]["start_s"]
    until(lambda: time.time() > planned_s + 3, "the time of its step did not come", 60)
    late = daemon.explain(job)
    assert "4 of 12 places: it waits for its width, and the step before is held" in late["now"]
    assert late["planned"][-1]["end_s"] - late["planned"][-1]["start_s"] == pytest.approx(240, abs=10)
    end.touch()
    daemon.wait_event(job, "epoch.running", 2)
    with Client(socket=str(daemon.state / "ejbd.sock")) as client:
        said = client.job(job).evolve("now:4")
    assert [places for _, places in said["steps"]] == [4, 12, 4]
    paced.ended_well("result", job)
    assert paced.epochs(job) == [4, 12, 4]
    ended = next(s for s in all_ended(daemon, job)["subjobs"] if s["id"] == increment)
    assert ended["end_s"] - ended["start_s"] < 60, "it is given back"


def test_a_program_asks_for_more_and_gives_it_back(paced: Paced) -> None:
    asks_from_inside(replace(paced, ranks=16, steps=60))


@pytest.mark.nightly("the one before asks as well; unit/test_manager_evolving.py has the answers")
def test_a_program_that_cannot_have_more_is_told_in_time(paced: Paced, cluster: SlurmCluster, tmp_path: Path) -> None:
    go, end = tmp_path / "go", tmp_path / "end"
    busy = f"touch {go}; until [ -e {end} ]; do sleep 0.2; done"
    script = f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.2; done; touch {end}; sleep 600\n"
    other = cluster.sbatch("-N", "7", "-n", "28", "-t", "3", "-o", "/dev/null", script=script)
    cluster.until(lambda: cluster.states().get(other) == "RUNNING", "the others did not start")
    is_told_in_time(replace(paced, ranks=16, steps=30), busy)


@pytest.mark.nightly("unit/test_manager_evolving_guaranteed.py has each step")
@ALL
@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", [2, 1, 3])
def test_a_node_is_lost(paced: Paced, cluster: SlurmCluster, step: int) -> None:
    """In its narrow steps that of J0, in the wide one that of the increment: it goes on with the widths that are
    left, and its result is the same."""
    daemon = paced.daemon
    job = paced.submit("result", "4:8s,12:6s,4:5m" if step == 3 else "4:8s,12:2m,4:5m")
    daemon.wait_event(job, "epoch.running", step)
    lost = daemon.job(job)["subjobs"][step == 2]
    node = lost["nodes"][0]

    def another() -> bool:
        asked = [s for s in daemon.job(job)["subjobs"] if s["processors"] == lost["processors"]]
        return len(asked) > 1 and asked[-1]["start_s"] is not None

    cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
    try:
        until(another, "no other one comes in its place", 90, daemon.trace(job))
    finally:
        cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)  # it may be back by itself
    paced.ended_well("result", job)
    assert paced.epochs(job) == {1: [4, 4, 12], 2: [4, 12, 4, 12], 3: [4, 12, 4, 4]}[step]


@pytest.mark.nightly("unit/test_manager_evolving_crashes.py has a death at each point")
@ALL
@pytest.mark.sampled(4)
@pytest.mark.parametrize("step", [1, 0, 2, 3])
def test_the_daemon_is_killed_in_a_step(paced: Paced, step: int) -> None:
    """Before the job begins, and in each of its steps: killed, and started again two seconds later."""
    daemon = paced.daemon
    job = paced.submit("result", "4:8s,12:10s,4:5m")
    if step:
        daemon.wait_event(job, "epoch.running", step)
    daemon.kill()
    time.sleep(2)
    daemon.start()
    paced.ended_well("result", job)
    assert paced.epochs(job) == [4, 12, 4]
    assert [s["processors"] for s in all_ended(daemon, job)["subjobs"]] == [4, 8], "nothing is asked for twice"


@pytest.mark.nightly("test_evolving_many.py has two such jobs")
@ALL
def test_two_jobs_whose_peaks_interlock(paced: Paced) -> None:
    """Two peaks of 20 on 32 processors."""
    peaks_interlock(replace(paced, ranks=20, steps=160), "8:6s,20:8s,8:5m")
