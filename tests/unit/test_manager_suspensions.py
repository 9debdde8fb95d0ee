"""What an operator suspends (qsig -s suspend, scontrol suspend), or the batch system for others, is left alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.batch.pbs import openpbs
from ejbd.core.room.suspended import kept_for_suspended
from ejbd.core.room.windows import windows
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def told(live: LiveWorld, subjob: str, state: BatchState, after_s: float = 0.0) -> None:
    """What the batch system says of a batch job that has started: `after_s` is no part of its walltime."""
    seen = live.batch.of(f"ejb-{subjob}")
    live.batch.jobs[seen.id] = replace(seen, state=state, end_s=(seen.end_s or 0.0) + after_s)


BY_PROFILE: dict[str, Any] = {"engine": "auto", "argv": ("./ejb-own-heat",)}
BOTH = pytest.mark.parametrize("spec", [{}, BY_PROFILE], ids=["as it is", "by a profile"])


async def running(live: LiveWorld, **spec: Any) -> str:
    job = await live.submit(**spec)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    live.batch.free = 0
    await live.poll(5)
    return job


async def test_a_suspended_subjob_has_a_state_of_its_own_and_nothing_is_decided_about_its_job(live: LiveWorld) -> None:
    job = await running(live)
    told(live, f"{job}.1", BatchState.SUSPENDED)
    live.batch.free = 8
    await live.poll(5)
    before = live.job(job).work_s
    for _ in range(20):
        await live.poll(30, heartbeats=False)  # its processes are stopped
    row, subjob = live.job(job), live.subjobs(job)[1]
    assert (row.state, subjob.state) == ("running", "suspended")
    assert row.reason == subjob.reason == f"the batch system has suspended its batch job {subjob.batch_id}"
    assert (row.work_rate, row.work_s) == (0.0, before)
    assert len(live.subjobs(job)) == 2 and live.batch.of(f"ejb-{job}.1").state is BatchState.SUSPENDED
    assert not {"subjob.released", "worker.lost", "epoch.failed"} & set(live.kinds(job))


@pytest.mark.sampled(2)
@BOTH
async def test_a_job_runs_on_after_a_suspension_with_the_time_that_it_lost(
    live: LiveWorld, spec: dict[str, Any]
) -> None:
    job = await running(live, **spec)
    usable_s = live.subjobs(job)[1].usable_s
    told(live, f"{job}.1", BatchState.SUSPENDED)
    await live.poll(5)
    for _ in range(20):
        await live.poll(30, heartbeats=False)
    told(live, f"{job}.1", BatchState.RUNNING, 601)
    await live.poll(1)
    await live.poll(1)
    row, subjob = live.job(job), live.subjobs(job)[1]
    assert (row.state, row.reason, subjob.state, row.work_rate) == ("running", "", "running", 0.25)
    assert subjob.usable_s == usable_s + 601
    for worker in live.workers.values():
        await worker.finish_ranks(1)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"


async def test_a_passed_through_job_that_is_suspended_says_so(live: LiveWorld) -> None:
    job = await live.submit(elastic=False)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    told(live, f"{job}.0", BatchState.SUSPENDED)
    await live.poll(1)
    assert live.subjobs(job)[0].state == "suspended" and "suspended" in live.job(job).reason
    live.batch.end(f"ejb-{job}.0")
    await live.poll(1)
    assert live.job(job).state == "completed"


async def test_a_suspended_job_of_which_its_user_has_enough_is_cancelled(live: LiveWorld) -> None:
    job = await running(live)
    told(live, f"{job}.1", BatchState.SUSPENDED)
    await live.poll(5)
    await live.manager.cancel(job, "ada")
    await live.act()
    assert live.batch.of(f"ejb-{job}.1").state is BatchState.CANCELLED


def test_room_that_a_suspended_job_needs_is_not_free() -> None:
    """As OpenPBS 23.06.06 lists it: its nodes are idle, and it keeps its exec_host."""
    nodes = tuple(NodeView(name, 4, free, True, ("batch",)) for name, free in (("n1", 4), ("n2", 3)))
    stopped = BatchJobView("1.head", "his", "bob", "batch", BatchState.SUSPENDED, 4, 200.0, nodes=("n1", "n2"))
    other = BatchJobView("2.head", "hers", "eve", "batch", BatchState.RUNNING, 1, 200.0, end_s=900.0, nodes=("n2",))
    queue = QueueView("batch", True, None, 1, 8)
    view = ClusterView(0.0, nodes, (stopped, other), (queue,), Reservations.NODES)
    assert windows(view, "batch", 0.0).available(10.0) == 7
    assert [node.free for node in kept_for_suspended(view).nodes] == [2, 1]
    assert windows(kept_for_suspended(view), "batch", 0.0).available(10.0) == 3


def test_the_walltime_of_what_openpbs_has_suspended_stands_still() -> None:
    text = """{"Jobs": {"11.head": {"Job_Name": "a", "Job_Owner": "ada@head", "job_state": "%s", "queue": "batch",
      "exec_host": "n1/0+n1/1", "stime": "Mon Nov 23 23:37:14 2026", "resources_used": {"walltime": "%s"},
      "Resource_List": {"ncpus": 2, "walltime": "00:10:00"}}}}"""
    began = 1795477034.0

    def end(state: str, used: str, now: float) -> float | None:
        (row,), unparsed = openpbs.jobs(text % (state, used), "ada", began + now)
        assert not unparsed and row.view.start_s == began
        return None if row.view.end_s is None else row.view.end_s - began

    assert end("R", "00:00:00", 100) == 600  # the mom has not told yet
    assert end("S", "00:01:00", 300) == 600 + 240
    assert end("R", "00:01:40", 1000) == 600 + 720  # at least so long was it stopped
