"""A subjob begins with the word of its workers: no poll is waited for, nor made for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from ejbd.core.overhead import Hop
from ejbd.store.models import Overhead, Subjob
from ejbd.store.store import Store
from ejbd.store.transitions import STARTED_TOPIC
from ejbd.wire.kinds import SubjobRole
from tests.fakes.alone import folder
from tests.fakes.live import LiveWorld, Worker, some


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def queued(live: LiveWorld) -> str:
    """A job whose J0 waits, as the last poll has seen."""
    live.batch.free = 0
    job = await live.submit(16, walltime_s=100.0)
    await live.poll(1)
    assert [subjob.state for subjob in live.subjobs(job)] == ["pending"]
    return job


async def comes(live: LiveWorld, job: str, processors: int = 16, node: str = "n1") -> Worker:
    """The batch system has begun J0, and one of its workers is there; no poll has seen it."""
    worker = Worker(live, f"{job}.0", processors, node)
    live.workers[f"{job}.0 {node}"] = worker
    await worker.register()
    return worker


async def test_it_runs_when_its_worker_comes(live: LiveWorld) -> None:
    job = await queued(live)
    topics: set[str] = set()
    live.store.on_commit(topics.update, on_writer=True)
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 3
    await comes(live, job)
    await live.work()
    assert live.job(job).state == "running" and live.epochs(job)[-1].state == "running"
    assert STARTED_TOPIC not in topics, "no poll is asked for"
    await live.poll(1)
    assert live.subjobs(job)[0].heard_s is None and live.kinds(job).count("subjob.running") == 1


async def test_it_runs_when_all_its_workers_have_come(live: LiveWorld) -> None:
    job = await queued(live)
    await comes(live, job, 8, "n1")
    assert live.subjobs(job)[0].state == "pending"
    await comes(live, job, 8, "n2")
    j0 = live.subjobs(job)[0]
    assert (j0.state, j0.nodes, live.job(job).state) == ("running", ["n1", "n2"], "running")


async def test_a_look_that_was_begun_before_changes_nothing(live: LiveWorld) -> None:
    job = await queued(live)
    await comes(live, job)
    before = live.subjobs(job)[0]
    await live.poll(1)  # the batch system still shows it waiting
    after = live.subjobs(job)[0]
    assert (after.state, after.start_s, after.heard_s) == ("running", before.start_s, before.heard_s)
    assert live.job(job).state == "running"


async def test_the_first_poll_tells_when_it_began_and_how_long_its_workers_took(live: LiveWorld) -> None:
    """Behind a prolog of 30 s it ends 30 s sooner than by its workers' word."""
    job = await queued(live)
    live.batch.start(f"ejb-{job}.0")
    began_s = some(live.batch.of(f"ejb-{job}.0").start_s)
    live.clock.now += 30
    await comes(live, job)
    await live.work()
    heard = live.subjobs(job)[0]
    assert some(heard.start_s) >= began_s + 29
    await live.poll(1)
    shown = live.subjobs(job)[0]
    assert some(shown.start_s) == pytest.approx(began_s, abs=1)
    assert some(shown.end_s) - some(shown.start_s) == 100.0
    ready = select(Overhead.seconds).where(Overhead.hop == Hop.READY.value)
    assert live.store.read_sync(lambda s: s.scalars(ready).one()) == pytest.approx(30, abs=1)


async def test_a_start_that_only_whole_seconds_tell_otherwise_stays(live: LiveWorld) -> None:
    job = await queued(live)
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 0.9
    await comes(live, job)
    heard = live.subjobs(job)[0]
    await live.poll(1)
    assert live.subjobs(job)[0].start_s == heard.start_s


async def test_a_j0_that_has_begun_by_itself_is_not_begun_again(live: LiveWorld) -> None:
    job = await queued(live)
    claim = folder(live, job) / "claim.json"
    claim.write_text(json.dumps({"begun": {"order": "1", "at_s": live.clock.now, "node": "n1"}}))
    await comes(live, job)
    assert live.job(job).elastic is False and "job.alone" in live.kinds(job)
    assert live.launches(job) == []


async def test_a_subjob_beside_j0_runs_when_its_worker_comes_and_what_runs_there_goes_to_j0(live: LiveWorld) -> None:
    job = await live.submit(16, walltime_s=2000.0)
    await live.poll(1)
    live.batch.start(f"ejb-{job}.1")
    worker = live.workers[f"{job}.1"] = Worker(live, f"{job}.1", live.subjobs(job)[1].processors)
    await worker.register()
    await live.work()
    assert live.subjobs(job)[1].heard_s is not None
    assert (live.job(job).state, live.epochs(job)[-1].members) == ("running", [f"{job}.1"])
    await live.poll(100)
    live.batch.start(f"ejb-{job}.0")
    await comes(live, job)
    await live.work()
    assert (live.epochs(job)[-1].state, live.epochs(job)[-1].members) == ("running", [f"{job}.0"])
    await live.poll(1)
    assert {subjob.heard_s for subjob in live.subjobs(job)} == {None}
    assert live.kinds(job).count("subjob.running") == 2


async def test_a_subjob_that_comes_when_j0_runs_the_job_is_given_back(live: LiveWorld) -> None:
    job = await live.submit(16, walltime_s=2000.0)
    await live.poll(1)
    live.batch.start(f"ejb-{job}.0")
    await comes(live, job)
    await live.work()
    late = Worker(live, f"{job}.1", live.subjobs(job)[1].processors)
    await late.register()
    assert live.job(job).members == [f"{job}.0"]
    assert live.subjobs(job)[1].releasing or live.subjobs(job)[1].state == "cancelled"


async def test_without_a_poll_so_far_it_is_waited_for(live: LiveWorld) -> None:
    job = await queued(live)
    await live.restart()
    live.manager.world.view = None
    await comes(live, job)
    assert live.subjobs(job)[0].state == "pending"


async def test_an_array_s_row_is_no_start(live: LiveWorld) -> None:
    """A row of the listing under another tag is not J0's, whatever its number."""
    job = await queued(live)
    await comes(live, job)
    row = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[row.id] = replace(row, tag="ejb-else.0", name="ejb-else.0")
    await live.poll(1)
    assert live.subjobs(job)[0].state == "running" and live.subjobs(job)[0].heard_s is not None


async def test_a_job_does_not_ask_for_more_at_the_poll_in_which_it_begins(live: LiveWorld) -> None:
    """Its launch would wait for what it asks for."""
    job = await live.submit(16, walltime_s=2000.0)
    await live.poll(1)
    live.batch.start(f"ejb-{job}.1")
    worker = live.workers[f"{job}.1"] = Worker(live, f"{job}.1", live.subjobs(job)[1].processors)
    live.clock.now += 1
    await worker.register()
    await live.poll(1)  # before its lead has answered
    assert len(live.subjobs(job)) == 2
    await live.work()
    await live.poll(1)
    assert live.epochs(job)[0].running_s is not None and len(live.subjobs(job)) == 3


@pytest.mark.parametrize("role", [SubjobRole.ASIDE, SubjobRole.RIGID])
async def test_a_j0_that_is_back_in_the_queue_before_a_poll_saw_it_run_waits_again(
    live: LiveWorld, role: SubjobRole
) -> None:
    """It was set aside, or has begun by itself and lost its node. It was taken to run for ever."""
    job = await queued(live)
    await comes(live, job)
    given = update(Subjob).where(Subjob.id == f"{job}.0").values(role=role.value)
    await live.store.write(lambda s: s.execute(given))
    await live.poll(1)
    assert live.subjobs(job)[0].state == "running", "the look may be of before"
    await live.poll(5)
    assert live.subjobs(job)[0].state == "pending"
