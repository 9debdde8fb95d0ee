"""Slurm's commands that hang, lie or die on the way, and a controller that does."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.batch.base import SubmitRequest
from ejbd.batch.process import Commands, CommandTimedOut, plain_environment
from ejbd.batch.slurm import SlurmBatch
from ejbd.core.view import BatchState
from ejbd.errors import BatchError, Code, SubmitOutcomeUnknown
from tests.fakes.me import ME
from tests.fakes.slurm_commands import UNREACHABLE, FaultyCommands
from tests.integration.slurm_clusters import SlurmCluster

pytestmark = pytest.mark.slurm


def request(folder: Path, tag: str = "ejb-fault", script: str = "sleep 300") -> SubmitRequest:
    return SubmitRequest(
        tag=tag,
        comment="",
        queue="batch",
        processors=1,
        walltime_s=600,
        script=f"#!/bin/sh\n{script}\n",
        workdir=folder,
        output=Path("/dev/null"),
    )


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyCommands:
    return FaultyCommands(tmp_path / "bin")


@pytest.fixture
def batch(slurm: SlurmCluster, faulty: FaultyCommands) -> SlurmBatch:
    return slurm.batch(path=faulty.path, timeout_s=2, submit_timeout_s=1)


async def test_a_poll_is_one_squeue_and_one_scontrol(batch: SlurmBatch, faulty: FaultyCommands, tmp_path: Path) -> None:
    await batch.observe()
    for i in range(20):
        await batch.submit(ME, request(tmp_path, f"ejb-{i}"))
    before = faulty.calls()
    for _ in range(3):
        await batch.observe()
    asked = faulty.calls() - before
    assert asked.pop("scontrol") in (3, 4), "reservations are asked for once a minute"
    assert asked == {"squeue": 3}
    assert {name: count.calls for name, count in batch.commands.counts.items()} == dict(faulty.calls())
    before = faulty.calls()
    assert len(await batch.find(ME, [f"ejb-{i}" for i in range(30)])) == 20
    assert faulty.calls() - before == {"squeue": 1}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", ["hang", "done-then-hang", "done-then-lost", "done-then-silent"])
async def test_a_submission_without_an_answer_is_unknown_and_found_by_its_tag(
    batch: SlurmBatch, faulty: FaultyCommands, tmp_path: Path, fault: str
) -> None:
    tag = f"ejb-{fault}"
    faulty.fault("sbatch", fault, once=True)
    began = time.monotonic()
    with pytest.raises(SubmitOutcomeUnknown) as caught:
        await batch.submit(ME, request(tmp_path, tag))
    assert caught.value.transient and time.monotonic() - began < 30
    found = await batch.find(ME, [tag])
    assert list(found) == ([] if fault == "hang" else [tag])
    if not found:
        found = {tag: await batch.submit(ME, request(tmp_path, tag))}
    jobs = [job for job in (await batch.observe()).jobs if job.name == tag]
    assert [job.id for job in jobs] == [found[tag]]


async def test_a_hanging_command_leaves_no_process(batch: SlurmBatch, faulty: FaultyCommands) -> None:
    faulty.fault("squeue", "hang")
    with pytest.raises(CommandTimedOut) as caught:
        await batch.observe()
    assert caught.value.code is Code.BATCH_UNAVAILABLE
    for _ in range(200):
        if not _running_under(faulty.folder):
            break
        await asyncio.sleep(0.05)
    assert _running_under(faulty.folder) == []
    assert batch.commands.counts["squeue"].failures == 1
    faulty.mend("squeue")
    assert len((await batch.observe()).nodes) == 8


def _running_under(folder: Path) -> list[str]:
    """Processes on whose PATH the folder comes first, but for jobs that inherited it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"PATH={folder}:".encode() in environment and b"SLURM_JOB_ID=" not in environment and state not in "ZX":
            found.append(entry.name)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["squeue", "scontrol"])
@pytest.mark.parametrize("fault", ["garbage", UNREACHABLE])
async def test_a_poll_that_cannot_be_read_fails_and_passes(
    batch: SlurmBatch, faulty: FaultyCommands, name: str, fault: str
) -> None:
    faulty.fault(name, fault)
    with pytest.raises(BatchError) as caught:
        await batch.observe()
    assert caught.value.transient
    faulty.mend(name)
    assert len((await batch.observe()).nodes) == 8


async def test_squeue_answering_nothing_ends_nobody(batch: SlurmBatch, faulty: FaultyCommands, tmp_path: Path) -> None:
    id = await batch.submit(ME, request(tmp_path))
    faulty.fault("squeue", "nothing")
    assert (await batch.observe()).jobs == ()
    assert await batch.outcomes({id: tmp_path / "none"}) == {}
    faulty.mend("squeue")
    assert [job.id for job in (await batch.observe()).jobs if not job.state.ended] == [id]
    faulty.fault("scontrol", "nothing")
    with pytest.raises(BatchError):
        await batch.observe()


async def test_a_torn_answer_is_counted_and_proves_no_absence(
    batch: SlurmBatch, faulty: FaultyCommands, tmp_path: Path
) -> None:
    for i in range(6):
        await batch.submit(ME, request(tmp_path, f"ejb-{i}"))
    faulty.fault("squeue", "torn")
    view = await batch.observe()
    assert view.unparsed == 1 and view.jobs
    with pytest.raises(BatchError) as caught:
        await batch.find(ME, ["ejb-5"])
    assert caught.value.transient


async def test_absence_is_only_proved_by_an_answer(batch: SlurmBatch, faulty: FaultyCommands) -> None:
    for fault in ("hang", "garbage", UNREACHABLE):
        faulty.fault("squeue", fault)
        with pytest.raises(BatchError):
            await batch.find(ME, ["ejb-1"])


async def test_exit_files_speak_while_slurm_is_silent(
    batch: SlurmBatch, faulty: FaultyCommands, tmp_path: Path
) -> None:
    (tmp_path / "exit").write_text("7\n")
    faulty.fault("squeue", UNREACHABLE)
    outcomes = await batch.outcomes({"1": tmp_path / "exit", "2": tmp_path / "none"})
    assert {id: (outcome.exit_code, outcome.source) for id, outcome in outcomes.items()} == {"1": (7, "exit-file")}
    with pytest.raises(BatchError):
        await batch.outcomes({"2": tmp_path / "none"})


async def test_a_cancellation_that_failed_is_told(batch: SlurmBatch, faulty: FaultyCommands, tmp_path: Path) -> None:
    id = await batch.submit(ME, request(tmp_path))
    faulty.fault("scancel", "scancel: error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(BatchError) as caught:
        await batch.cancel(ME, [id])
    assert caught.value.transient


async def test_more_output_than_anybody_can_mean_is_cut(slurm: SlurmCluster, faulty: FaultyCommands) -> None:
    faulty.fault("squeue", "endless")
    few = Commands(plain_environment() | {"PATH": faulty.path}, output_limit=100_000)
    with pytest.raises(BatchError, match="more than 100000 bytes"):
        await few.run(["squeue"], timeout_s=20)
    with pytest.raises(BatchError, match="not installed"):
        await few.run(["squeue-of-nowhere"], timeout_s=20)


async def test_a_controller_that_is_killed_and_comes_back(own_slurm: SlurmCluster, tmp_path: Path) -> None:
    batch = own_slurm.batch(timeout_s=2, submit_timeout_s=2)
    id = await batch.submit(ME, request(tmp_path))
    os.kill(own_slurm.pids()["slurmctld"], signal.SIGKILL)
    for call in (
        batch.observe(),
        batch.submit(ME, request(tmp_path)),
        batch.find(ME, ["ejb-fault"]),
        batch.cancel(ME, [id]),
    ):
        with pytest.raises(BatchError) as caught:
            await call
        assert caught.value.transient
    assert [good for what, good, _ in await batch.doctor() if what == "controller"] == [False]
    own_slurm.up_again("--profile=fail")
    # It may have forgotten the job, or restarted it; but it answers, and knows its nodes.
    view = await batch.observe()
    assert len(view.nodes) == 3
    assert set(await batch.find(ME, ["ejb-fault"])) <= {"ejb-fault"}


async def test_a_node_that_dies_ends_its_job_without_requeue(own_slurm: SlurmCluster, tmp_path: Path) -> None:
    batch = own_slurm.batch()
    id = await batch.submit(ME, replace(request(tmp_path), processors=2))
    deadline = time.monotonic() + 60
    while not (job := next(job for job in (await batch.observe()).jobs if job.id == id)).nodes:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    (node,) = job.nodes
    os.kill(own_slurm.pids()[node], signal.SIGKILL)
    while not (job := next(job for job in (await batch.observe()).jobs if job.id == id)).state.ended:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.5)
    assert job.state is BatchState.NODE_FAIL
    view = await batch.observe()
    assert [found.usable for found in view.nodes if found.name == node] == [False]
