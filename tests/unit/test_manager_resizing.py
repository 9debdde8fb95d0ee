"""A pool leaves a job half of its processors, and gives them back: what the daemon asks, and reckons with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from ejbd.core.question import Question
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.acts.learnt import remember
from ejbd.manager.facts.past.history import Remembered
from ejbd.store.models import Job, Speed
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store, policy="fcfs-malleable")


async def whole(live: LiveWorld) -> tuple[str, Worker]:
    """A job of 16 ranks that runs on J0, each on a processor of its own."""
    live.batch.free = 0
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    worker = await live.begin(f"{job}.0")
    await live.poll(1)
    assert (live.epochs(job)[0].state, live.epochs(job)[0].processors) == ("running", 16)
    return job, worker


def share(live: LiveWorld, job: str, processors: int) -> None:
    seen = live.batch.of(f"ejb-{job}.0")
    numbers = tuple(range(processors))
    live.batch.jobs[seen.id] = replace(seen, share=(("n1", processors),), places=(("n1", numbers),))


def asked(worker: Worker) -> list[list[int]]:
    return [[one["processor"] for one in payload["ranks"]] for kind, payload in worker.done if kind == "resize"]


async def test_it_is_folded_and_unfolded_and_works_at_the_speed_of_each(live: LiveWorld) -> None:
    job, worker = await whole(live)
    share(live, job, 8)
    await live.poll(1)
    assert live.epochs(job)[0].processors == 16, "not before it was answered"
    await live.work()
    (epoch,) = live.epochs(job)
    assert epoch.processors == 8 and [seat.processor for seat in epoch.placement] == [rank // 2 for rank in range(16)]
    assert live.job(job).work_rate == 1 / 2
    share(live, job, 16)
    await live.poll(10)
    await live.work()
    assert asked(worker) == [[rank // 2 for rank in range(16)], list(range(16))]
    told = [payload["cpus"]["numbers"] for kind, payload in worker.done if kind == "resize"]
    assert told == [list(range(8)), list(range(16))]
    assert (live.epochs(job)[0].processors, live.job(job).work_rate) == (16, 1.0)
    told = [data for kind, data in live.events(job) if kind == "epoch.resized"]
    assert [(one["was"], one["processors"], one["rate"]) for one in told] == [(16, 8, 0.5), (8, 16, 1.0)]
    await live.poll(10)
    assert not await worker.work(), "nothing is asked twice"


async def test_a_daemon_killed_between_decision_and_answer_hears_it(live: LiveWorld) -> None:
    job, worker = await whole(live)
    share(live, job, 8)
    await live.poll(1)
    await live.restart()
    await live.poll(1)
    await live.work()
    assert len(asked(worker)) == 1 and live.epochs(job)[0].processors == 8


async def test_a_worker_that_refuses_is_asked_again_after_a_while(live: LiveWorld) -> None:
    job, worker = await whole(live)
    worker.fail["resize"] = {}
    share(live, job, 8)
    await live.poll(1)
    await live.work()
    await live.poll(1)
    await live.work()
    assert len(asked(worker)) == 1
    assert (live.epochs(job)[0].processors, live.job(job).work_rate) == (16, 1.0), "its ranks are where they were"
    assert "operation.failed" in live.kinds(job)
    worker.fail.clear()
    await live.poll(11)
    await live.work()
    assert live.epochs(job)[0].processors == 8


async def test_while_a_worker_does_not_answer_nothing_else_is_asked(live: LiveWorld) -> None:
    job, worker = await whole(live)
    worker.deaf.add("resize")
    for processors in (8, 16, 8):
        share(live, job, processors)
        await live.poll(1)
        await live.work()
    assert live.epochs(job)[0].processors == 16
    worker.deaf.clear()
    await live.poll(60)
    await live.work()
    assert asked(worker) == [[rank // 2 for rank in range(16)]] and live.epochs(job)[0].processors == 8


async def test_two_jobs_on_the_same_nodes_keep_to_halves_of_them(live: LiveWorld) -> None:
    """As in a partition with OverSubscribe=FORCE:2, where the batch system starts both on all of n1."""
    live.batch.total, live.batch.jobs_a_processor = 16, 2
    first, worker = await whole(live)
    second = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    beside = await live.begin(f"{second}.0")
    await live.poll(1)
    await live.work()
    assert [live.epochs(job)[0].processors for job in (first, second)] == [8, 8]
    (told,) = [payload["cpus"] for kind, payload in worker.done if kind == "resize"]
    (other,) = [payload["cpus"] for kind, payload in beside.done if kind == "launch"]
    assert (told["numbers"], other["numbers"]) == (list(range(8)), list(range(8, 16)))
    live.batch.end(f"ejb-{second}.0")
    await live.poll(1)
    await live.work()
    assert live.epochs(first)[0].processors == 16 and len(asked(worker)) == 2


async def beside(live: LiveWorld, first: str) -> tuple[str, Worker]:
    """Another job of 16 ranks on the other half of the node, whose worker is there before the daemon has looked."""
    live.batch.free = 16
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    share(live, first, 8)
    seen = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[seen.id] = replace(seen, share=(("n1", 8),), places=(("n1", tuple(range(8, 16))),))
    worker = await live.begin(f"{job}.0")
    return job, worker


async def test_it_is_launched_once_the_ranks_before_it_have_left_its_processors(live: LiveWorld) -> None:
    first, slow = await whole(live)
    del live.workers[f"{first}.0"]  # it does nothing until it is told to here
    second, _ = await beside(live, first)
    await live.restart()
    for _ in range(2):
        await live.poll(1)
        await live.work()
    assert not live.epochs(second), "nothing of it runs where ranks of the first one are"
    assert await slow.work() == ["resize"]
    await live.poll(1)
    await live.work()
    assert [live.epochs(job)[0].processors for job in (first, second)] == [8, 8]


@pytest.mark.parametrize("how", ["refuses", "does not answer"])
async def test_it_does_not_wait_for_ranks_that_do_not_leave(live: LiveWorld, how: str) -> None:
    first, worker = await whole(live)
    if how == "refuses":
        worker.fail["resize"] = {}
    else:
        worker.deaf.add("resize")
    second, _ = await beside(live, first)
    for _ in range(3):
        await live.poll(1 if how == "refuses" else 5)
        await live.work()
    assert live.epochs(second)[0].processors == 8 and live.epochs(first)[0].processors == 16


async def test_before_its_pool_ends_its_work_is_saved_and_it_waits_again(live: LiveWorld) -> None:
    job, _ = await whole(live)
    seen = live.batch.of(f"ejb-{job}.0")
    by_s = live.clock.now + 100.0
    live.batch.jobs[seen.id] = replace(seen, end_s=by_s)  # its walltime ends later
    await live.poll(1)
    assert live.job(job).state == "running", "there is time yet"
    while live.job(job).state == "running" and live.clock.now < by_s:
        await live.poll(5)
        await live.work()
    found = live.job(job)
    assert live.clock.now < by_s and (found.state, found.setbacks) == ("waiting", 0) and found.work_s > 0
    live.batch.end(f"ejb-{job}.0")
    await live.poll(5)
    assert [one.state for one in live.subjobs(job)][-1] == "pending", "it has a place in the queue again"


async def test_a_job_that_starts_folded_is_launched_so(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    share(live, job, 8)
    await live.begin(f"{job}.0")
    await live.poll(1)
    assert (live.epochs(job)[0].processors, live.job(job).work_rate) == (8, 1 / 2)


async def in_place(tmp_path: Path, store: Store) -> tuple[LiveWorld, str, Worker]:
    """A job of 16 ranks that runs on four processors, and has four more of the same node."""
    live = LiveWorld(tmp_path, store, in_place="on")
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.poll(1)
    await live.poll(10)
    assert [one.processors for one in live.subjobs(job)[1:]] == [4, 4]
    return live, job, worker


async def test_a_further_subjob_on_a_node_that_it_has_is_taken_and_left_without_a_checkpoint(
    tmp_path: Path, store: Store
) -> None:
    live, job, worker = await in_place(tmp_path, store)
    await live.begin(f"{job}.2")
    for _ in range(3):
        await live.poll(1)
        await live.work()
    ((epoch,), (first, second)) = live.epochs(job), live.subjobs(job)[1:]
    assert (epoch.processors, epoch.members) == (8, [first.id, second.id])
    assert asked(worker) == [[rank // 2 for rank in range(16)]]
    assert [payload["lent"] for kind, payload in worker.done if kind == "resize"] == [4]
    await live.store.write(lambda s: s.execute(update(Job).where(Job.id == job).values(members=[first.id])))
    for _ in range(3):
        await live.poll(1)
        await live.work()
    (epoch,) = live.epochs(job)
    assert (epoch.processors, epoch.members) == (4, [first.id])
    assert asked(worker)[1:] == [[rank // 4 for rank in range(16)]]
    assert live.subjobs(job)[2].releasing, "what it has left is given back"


async def test_where_its_worker_refuses_it_is_moved_by_a_checkpoint(tmp_path: Path, store: Store) -> None:
    live, job, worker = await in_place(tmp_path, store)
    worker.fail["resize"] = {}
    await live.begin(f"{job}.2")
    for _ in range(4):
        await live.poll(1)
        await live.work()
    kinds = [kind for kind, _ in worker.done]
    assert kinds.count("resize") == 1 and "checkpoint" in kinds
    assert [one.processors for one in live.epochs(job)] == [4, 8]


async def test_where_the_further_subjob_is_lost_its_ranks_go_on_without_it(tmp_path: Path, store: Store) -> None:
    live, job, _ = await in_place(tmp_path, store)
    await live.begin(f"{job}.2")
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[0].processors == 8
    live.batch.end(f"ejb-{job}.2")
    for _ in range(3):
        await live.poll(1)
        await live.work()
    (epoch,) = live.epochs(job)
    assert (epoch.state, epoch.processors, epoch.members) == ("running", 4, [f"{job}.1"])
    assert live.job(job).setbacks == 0


def remember_speeds(live: LiveWorld, job: str, over: float) -> None:
    """An earlier run of the application got on at 10 units a second, and so fast (`over`) at degree 2."""
    columns: dict[str, Any] = {"application": live.job(job).application, "work": "w", "job_id": "old", "launch": 0}
    columns |= {"epoch": 1, "at_s": 0.0, "seconds": 100.0, "total": 5000.0}

    def add(session: Session) -> None:
        remember(session, Speed(**columns, processors=16, degree=1, units=1000.0))
        remember(session, Speed(**columns, processors=8, degree=2, units=100.0 * over))

    live.store.write_sync(add)
    live.manager.world.remembered = Remembered()


async def asked_back(tmp_path: Path, store: Store, over: float, wanted: int = 4) -> tuple[LiveWorld, str, Worker]:
    """It has the eight, and a job that waits would fit into the four that its ranks could leave."""
    live, job, worker = await in_place(tmp_path, store)
    remember_speeds(live, job, over)
    await live.begin(f"{job}.2")
    live.batch.free = 0
    for _ in range(6):
        await live.poll(10)
        await live.work()
    assert live.epochs(job)[0].processors == 8
    live.batch.others = [BatchJobView("77", "x", "eve", "batch", BatchState.PENDING, wanted, 600.0, reason="Resources")]
    for _ in range(3):
        await live.poll(1)
        await live.work()
    return live, job, worker


async def test_asked_for_room_it_leaves_in_place_what_the_waiting_job_fits_into(tmp_path: Path, store: Store) -> None:
    live, job, worker = await asked_back(tmp_path, store, over=10 / 1.5)  # Delta .75
    (epoch,) = live.epochs(job)
    assert (epoch.processors, epoch.members, live.job(job).state) == (4, [f"{job}.1"], "running")
    assert "checkpoint" not in [kind for kind, _ in worker.done] and asked(worker)[-1][-1] == 3
    (told,) = [data for kind, data in live.events(job) if "given_to" in data]
    assert (told["given_to"], told["leaves"], told["stays"]) == ("77", [f"{job}.2"], [f"{job}.1"])
    why = "job 77 of eve, which waits first, fits into the 4 processors that this job holds over-subscribed"
    assert told["reason"] == f"{why}; its ranks leave them in place"
    question = Question.from_json(told["question"])
    assert question.to_json() == told["question"] and question.answer().to_json() == told["decision"]
    assert live.subjobs(job)[2].releasing, "and no checkpoint is waited for"
    await live.restart()
    await live.poll(1)
    assert "77" in live.manager.world.memory.promises.standing, "what was given is remembered over a restart"


@pytest.mark.parametrize(
    ("over", "wanted"), [(10 / 1.64, 4), (10 / 1.5, 5)], ids=["Delta(2) is .82", "four are too few for it"]
)
async def test_where_folding_does_not_pay_or_not_do_it_is_checkpointed(
    tmp_path: Path, store: Store, over: float, wanted: int
) -> None:
    live, job, _ = await asked_back(tmp_path, store, over, wanted)
    (told,) = [data for kind, data in live.events(job) if "given_to" in data]
    assert told["leaves"] == [f"{job}.1", f"{job}.2"] and told["decision"]["kind"] == "suspend"
