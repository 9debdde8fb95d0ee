"""What stands by for the next learned walltime: submitted when a run begins, let begin by a time-out, nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ejbd.batch.pbs.commands import Qsub
from ejbd.batch.pbs.states import Dialect
from ejbd.batch.slurm.commands import Begins, Sbatch
from ejbd.config import Elasticity
from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import BatchError
from ejbd.manager.jobspec import Asked, JobKind
from ejbd.store.models import Intent
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_speculating import ends, learn, past, submit


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    learn(store)
    return LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)


async def runs(live: LiveWorld, **spec: Any) -> str:
    """A job whose first run has begun."""
    job = await submit(live, **spec)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    return job


async def times_out(live: LiveWorld, tag: str) -> None:
    live.clock.now += live.batch.of(tag).walltime_s or 0.0
    live.batch.end(tag, BatchState.TIMEOUT, None)
    await live.poll(1)


def let_begin(live: LiveWorld) -> list[str]:
    """The batch jobs that were let begin, in their order."""
    return [call.split()[1] for call in live.batch.calls if call.startswith("begin ")]


def waits(live: LiveWorld, job: str, ordinal: int) -> BatchJobView:
    return live.batch.of(f"ejb-{job}.{ordinal}")


async def test_the_next_walltime_stands_by_from_the_start_on_and_begins_after_a_time_out(live: LiveWorld) -> None:
    job = await submit(live)
    assert len(live.batch.requests) == 1, "nothing stands by for what waits itself"
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    first, second, *_ = (live.job(job).walltimes or {})["sequence_s"]
    request = live.batch.requests[waits(live, job, 1).id]
    assert request.stands_by_for == waits(live, job, 0).id and request.walltime_s == second
    assert [s.role for s in live.subjobs(job)] == ["rigid", "standby"]
    assert "it keeps a place as batch job 101" in (await live.manager.explain(job))["now"]
    for _ in range(3):
        await live.poll(5)
    assert len(live.batch.requests) == 2 and let_begin(live) == []

    await times_out(live, f"ejb-{job}.0")
    row = live.job(job)
    assert (row.state, row.walltime_s) == ("waiting", second) and let_begin(live) == ["101"]
    assert [s.role for s in live.subjobs(job)] == ["rigid", "rigid"] and len(live.batch.requests) == 2
    assert "subjob.adopted" in live.kinds(job)
    live.batch.start(f"ejb-{job}.1")
    await live.poll(1)
    assert live.batch.requests[waits(live, job, 2).id].stands_by_for == waits(live, job, 1).id
    live.clock.now += first + 60
    live.batch.end(f"ejb-{job}.1", BatchState.COMPLETED, 0)
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == "completed" and live.batch.live() == [] and let_begin(live) == ["101"]
    assert [(run.outcome) for run in past(live.store)] == ["completed"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("state", "becomes"),
    [
        (BatchState.COMPLETED, "completed"),
        (BatchState.FAILED, "failed"),
        (BatchState.NODE_FAIL, "failed"),
        (BatchState.PREEMPTED, "failed"),
        (BatchState.CANCELLED, "cancelled"),
    ],
)
async def test_after_any_other_end_it_is_cancelled_and_was_never_let_begin(
    live: LiveWorld, state: BatchState, becomes: str
) -> None:
    job = await runs(live)
    live.clock.now += 60
    live.batch.end(f"ejb-{job}.0", state, 0 if state is BatchState.COMPLETED else 1)
    await live.poll(1)
    assert live.job(job).state == becomes and let_begin(live) == []
    await live.poll(1)
    assert waits(live, job, 1).state is BatchState.CANCELLED and live.batch.live() == []
    assert live.subjobs(job)[1].state == "cancelled" and live.job(job).state == becomes


async def test_cancelling_the_job_cancels_both_though_its_time_runs_out(live: LiveWorld) -> None:
    job = await runs(live)
    await live.manager.cancel(job, "ada")
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(1)
    assert live.job(job).state in ("timeout", "cancelled") and let_begin(live) == []
    await live.poll(1)
    assert live.batch.live() == []


async def test_a_job_is_cancelled_while_it_waits_for_its_second_run(live: LiveWorld) -> None:
    job = await runs(live)
    await times_out(live, f"ejb-{job}.0")
    await live.manager.cancel(job, "ada")
    await live.act()
    await live.poll(1)
    assert live.job(job).state == "cancelled" and live.batch.live() == [] and len(live.batch.requests) == 2


@pytest.mark.parametrize("transient", [True, False])
async def test_where_it_is_refused_the_next_is_submitted_after_the_time_out(live: LiveWorld, transient: bool) -> None:
    job = await submit(live)
    live.batch.start(f"ejb-{job}.0")
    live.batch.refuse = BatchError("so many jobs are not allowed", transient=transient)
    for _ in range(4):
        await live.poll(1)
    assert live.job(job).state == "running" and len(live.batch.requests) == 1
    live.batch.refuse = None
    if not transient:
        await live.poll(400)
    await times_out(live, f"ejb-{job}.0")
    await live.poll(400)
    (second,) = [request for request in live.batch.requests.values() if request.tag != f"ejb-{job}.0"]
    assert live.job(job).state == "waiting" and second.stands_by_for == ""
    assert second.walltime_s == live.job(job).walltime_s
    assert "queue.paused" not in live.kinds(job)


async def test_what_somebody_has_cancelled_meanwhile_is_submitted_anew(live: LiveWorld) -> None:
    job = await runs(live)
    live.batch.end(f"ejb-{job}.1", BatchState.CANCELLED, None)
    await live.poll(1)
    assert live.job(job).state == "running"
    await times_out(live, f"ejb-{job}.0")
    assert live.job(job).state == "waiting" and waits(live, job, 2).state is BatchState.PENDING
    assert live.batch.requests[waits(live, job, 2).id].stands_by_for == "" and let_begin(live) == []


async def test_what_somebody_else_lets_begin_is_cancelled(live: LiveWorld) -> None:
    job = await runs(live)
    live.batch.start(f"ejb-{job}.1")
    await live.poll(1)
    assert waits(live, job, 1).state is BatchState.CANCELLED and live.job(job).state == "running"


async def test_a_daemon_that_dies_on_the_way_loses_and_doubles_no_run(live: LiveWorld) -> None:
    """The submission of what stands by is taken without an answer; later so is the word that it may begin."""
    job = await submit(live)
    live.batch.start(f"ejb-{job}.0")
    live.batch.lose_answers = 1
    live.clock.now += 1
    await live.manager.poller.poll()  # the start is seen and committed, nothing carried out
    await live.restart()
    for _ in range(4):
        await live.poll(10)
    assert [request.tag for request in live.batch.requests.values()] == [f"ejb-{job}.0", f"ejb-{job}.1"]
    live.clock.now += live.job(job).walltime_s
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    live.clock.now += 1
    await live.manager.poller.poll()  # the time-out, likewise
    assert let_begin(live) == [] and live.job(job).state == "waiting"
    live.batch.lose_begins = 1
    await live.restart()
    for _ in range(3):
        await live.poll(10)
    assert let_begin(live) == ["101", "101"] and not waits(live, job, 1).blocked
    assert len(live.batch.requests) == 2
    await ends(live, f"ejb-{job}.1", BatchState.COMPLETED, 60.0, 0)
    await live.poll(1)
    assert live.job(job).state == "completed" and live.batch.live() == [] and len(past(live.store)) == 1


async def test_a_time_out_before_the_submission_was_answered_lets_it_begin_once_it_is_found(live: LiveWorld) -> None:
    job = await submit(live)
    live.batch.start(f"ejb-{job}.0")
    live.batch.lose_answers = 1
    await live.poll(1)
    assert live.subjobs(job)[1].batch_id is None
    await times_out(live, f"ejb-{job}.0")
    for _ in range(3):
        await live.poll(6)
    assert let_begin(live) == ["101"] and len(live.batch.requests) == 2 and live.job(job).state == "waiting"


async def test_a_submission_that_had_not_been_tried_at_the_time_out_is_made_as_an_ordinary_one(live: LiveWorld) -> None:
    job = await submit(live)
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 1
    await live.manager.poller.poll()
    live.clock.now += live.job(job).walltime_s
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    live.clock.now += 1
    await live.manager.poller.poll()
    await live.act()
    assert live.batch.requests[waits(live, job, 1).id].stands_by_for == "" and let_begin(live) == []
    assert not [i for i in live.store.read_sync(lambda s: list(s.scalars(select(Intent)))) if i.state == "pending"]


async def test_held_and_released_is_what_waits_and_not_what_stands_by(live: LiveWorld) -> None:
    """A run that the batch system has put back into its queue waits, and may be held; what stands by is left alone."""
    job = await runs(live)
    first = waits(live, job, 0)
    live.batch.jobs[first.id] = BatchJobView(
        first.id, first.name, "ada", "batch", BatchState.PENDING, 16, first.walltime_s, submit_s=first.submit_s,
        tag=first.tag,
    )  # fmt: skip
    await live.poll(1)
    await live.manager.hold(job, "ada")
    await live.act()
    await live.manager.release(job, "ada")
    await live.act()
    told = [call for call in live.batch.calls if call.startswith("update ")]
    assert told == [f"update {first.id}"] * 2 and waits(live, job, 1).blocked


async def test_a_second_run_that_is_put_back_into_the_queue_is_not_overtaken(live: LiveWorld) -> None:
    """An earlier, shorter run has ended then, and what stands by is for after the time-out of this one."""
    job = await runs(live)
    await times_out(live, f"ejb-{job}.0")
    live.batch.start(f"ejb-{job}.1")
    await live.poll(1)
    second = waits(live, job, 1)
    live.batch.jobs[second.id] = replace(second, state=BatchState.PENDING, start_s=None, end_s=None, nodes=())
    for _ in range(3):
        await live.poll(30)
    assert live.job(job).state == "waiting" and let_begin(live) == [second.id]
    assert [s.role for s in live.subjobs(job)] == ["rigid", "rigid", "standby"] and waits(live, job, 2).blocked


@pytest.mark.parametrize(
    "spec",
    [
        {"rerunnable": False},
        {"learned": False},
        {"script": "#!/bin/sh\n#SBATCH hetjob\n", "kind": JobKind.SCRIPT, "argv": ()},
        {"script": "#!/bin/sh\n#SBATCH --mail-type=FAIL\n", "kind": JobKind.SCRIPT, "argv": ()},
    ],
)
async def test_for_whom_nothing_stands_by(live: LiveWorld, spec: dict[str, Any]) -> None:
    job = await runs(live, asked=Asked(directory=str(live.folder)), **spec)
    await live.poll(1)
    assert len(live.batch.requests) == 1 and live.job(job).state == "running"


async def test_a_queue_may_have_nothing_stand_by(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF, keep_place="off")
    learn(store)
    await runs(live)
    assert len(live.batch.requests) == 1


async def test_what_the_batch_systems_are_told(live: LiveWorld) -> None:
    job = await runs(live, asked=Asked(directory=str(live.folder), options=("--mem=1G", "--dependency=afterok:7")))
    request = live.batch.requests[waits(live, job, 1).id]
    argv = Sbatch(request).argv()
    assert argv.index("--dependency=afternotok:100") > argv.index("--dependency=afterok:7"), "the last one counts"
    assert {"--kill-on-invalid-dep=yes", "--begin=now+1000days", "--open-mode=append"} <= set(argv)
    assert Begins("101", True).argv() == ["scontrol", "update", "JobId=101", "StartTime=now"]
    qsub = Qsub(Dialect.OPENPBS, request, [(16, 1)]).argv()
    assert "-h" in qsub and "depend" not in " ".join(qsub)
    assert "-h" not in Qsub(Dialect.OPENPBS, live.batch.requests["100"], [(16, 1)]).argv()


async def test_room_that_is_free_now_goes_before_a_place_that_may_never_be_needed(live: LiveWorld) -> None:
    """Both are decided by one look, and the place first."""
    live.settings.limits.submit_concurrency = 1
    await live.manager.set_queue("batch", {"elasticity": "on"}, "root")
    live.batch.free = 0
    job = await submit(live, elastic=False)
    other = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    live.batch.start(f"ejb-{job}.0")
    live.batch.free = 4
    before = len(live.batch.calls)
    await live.poll(1)
    made = [call.split()[1] for call in live.batch.calls[before:] if call.startswith("submit ")]
    assert made == [f"ejb-{other}.1", f"ejb-{job}.1"]
