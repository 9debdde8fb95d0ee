"""Speculative backfill, live: into a window that is too short for the request, and back into the queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.api.models import Explanation
from ejbd.batch.slurm.commands import Begins
from ejbd.cli.showing import walltime_lines
from ejbd.config import Elasticity
from ejbd.core.speculation.backfill import Candidate, choose
from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import BatchError, EjbError
from ejbd.manager.facts.past.pastruns import Application, newest
from ejbd.manager.rules.learning import gaps
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_speculating import learn, only, past, submit

pytestmark = pytest.mark.sql

GAP_S = 700.0


def crowded(folder: Path, store: Store, **queue: Any) -> LiveWorld:
    """28 of 32 processors are in use for GAP_S seconds, then somebody else has all of them."""
    learn(store, processors=4)
    live = LiveWorld(folder, store, **({"elasticity": Elasticity.OFF, "gaps": "on"} | queue))
    now = live.clock.now
    live.batch.free = 4
    runs = BatchJobView("1", "x", "bob", "batch", BatchState.RUNNING, 28, GAP_S, now, now, now + GAP_S, ("n1",))
    waits = BatchJobView("2", "y", "bob", "batch", BatchState.PENDING, 32, 5000.0, submit_s=now)
    live.batch.others = [runs, waits]
    return live


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return crowded(tmp_path, store)


async def sent(live: LiveWorld) -> str:
    """A job that has been sent into the gap, and whose attempt waits there."""
    job = await submit(live, processes=4)
    await live.poll(1)
    assert len(live.batch.requests) == 2, live.kinds(job)
    return job


async def runs(live: LiveWorld) -> str:
    job = await sent(live)
    live.batch.start(f"ejb-{job}.1")
    live.batch.free = 0
    await live.poll(1)
    return job


def told(live: LiveWorld) -> list[str]:
    """What the batch system was told of beginnings, and submissions, in their order."""
    return [call for call in live.batch.calls if call.split()[0] in ("begin", "stay", "submit")]


def waiting(live: LiveWorld, job: str) -> BatchJobView:
    """The job's own batch job."""
    return live.batch.of(f"ejb-{job}.0")


async def test_it_goes_into_the_gap_by_its_law_while_its_own_batch_job_stays_where_it_is(live: LiveWorld) -> None:
    job = await sent(live)
    attempt = live.batch.of(f"ejb-{job}.1")
    own = waiting(live, job)
    assert told(live) == [f"submit ejb-{job}.0", "stay 100", f"submit ejb-{job}.1"], "kept from beginning first"
    assert own.state is BatchState.PENDING and own.blocked and not attempt.blocked
    walltime_s = attempt.walltime_s or 0.0
    assert GAP_S - 60 < walltime_s < GAP_S - 40 < (own.walltime_s or 0.0)
    assert [s.role for s in live.subjobs(job)] == ["standby", "rigid"]
    (gap,) = (live.job(job).walltimes or {})["gaps"]
    law = gaps._law(*_of_heat(live))
    best = choose([Candidate("a", 4, law)], 4, walltime_s) if law is not None else None
    assert best is not None and (gap["utilisation"], gap["finishes"]) == (best.utilisation, best.finishes)
    assert 0.5 < gap["finishes"] < 0.9
    explained = await live.manager.explain(job)
    assert f"sent into a gap of 4 processors with {walltime_s:g} s" in explained["now"]
    known = Explanation.model_validate(explained).walltimes
    assert known is not None and any("sent into a gap" in line for line in walltime_lines(known.model_dump()))
    await live.poll(5)
    assert len(live.batch.requests) == 2


def _of_heat(live: LiveWorld) -> tuple[Application, tuple[Any, ...]]:
    of = Application("ada", "heat", 4)
    return of, tuple(live.store.read_sync(lambda s: newest(s, of)))


async def test_once_it_is_done_its_own_batch_job_is_cancelled(live: LiveWorld) -> None:
    job = await runs(live)
    assert live.job(job).state == "running" and len(live.batch.requests) == 2, "and no further one stands by"
    live.clock.now += 500
    live.batch.end(f"ejb-{job}.1", BatchState.COMPLETED, 0)
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == "completed" and waiting(live, job).state is BatchState.CANCELLED
    assert "begin 100" not in told(live) and [run.outcome for run in past(live.store)] == ["completed"]


async def test_after_a_time_out_it_waits_where_it_was_with_its_old_request(live: LiveWorld) -> None:
    job = await runs(live)
    attempt = live.batch.of(f"ejb-{job}.1")
    live.clock.now += attempt.walltime_s or 0.0
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    await live.poll(1)
    row = live.job(job)
    sequence = (row.walltimes or {})["sequence_s"]
    assert (row.state, row.walltime_s, (row.walltimes or {})["at"]) == ("waiting", sequence[0], 0)
    assert told(live)[-1] == "begin 100" and not waiting(live, job).blocked and len(live.batch.requests) == 2
    only(live.store, attempt.walltime_s or 0.0, "timeout")
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    assert live.batch.requests[live.batch.of(f"ejb-{job}.2").id].stands_by_for == "100", "for the second walltime"
    live.clock.now += sequence[0] - 1
    live.batch.end(f"ejb-{job}.0", BatchState.COMPLETED, 0)
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == "completed" and [run.outcome for run in past(live.store)] == ["completed"]
    assert [job.state for job in live.batch.live()] == []


@pytest.mark.parametrize(
    ("state", "becomes"),
    [(BatchState.FAILED, "failed"), (BatchState.NODE_FAIL, "failed"), (BatchState.CANCELLED, "cancelled")],
)
async def test_after_any_other_end_nothing_is_run_again(live: LiveWorld, state: BatchState, becomes: str) -> None:
    job = await runs(live)
    live.batch.end(f"ejb-{job}.1", state, 3)
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == becomes and live.batch.live() == [] and "begin 100" not in told(live)


async def test_whoever_has_begun_meanwhile_is_sent_nowhere(live: LiveWorld) -> None:
    job = await submit(live, processes=4)
    observed = live.batch.observe

    async def begins_then() -> Any:
        view = await observed()
        live.batch.start(f"ejb-{job}.0")
        return view

    live.batch.observe = begins_then  # type: ignore[method-assign]
    await live.poll(1)
    live.batch.observe = observed  # type: ignore[method-assign]
    assert told(live)[-1] == "stay 100" and len(live.batch.requests) == 1
    await live.poll(1)
    assert live.job(job).state == "running" and live.subjobs(job)[0].role == "rigid"
    (gap,) = (live.job(job).walltimes or {})["gaps"]
    assert "is not pending any more" in gap["end"]


async def test_whoever_has_begun_before_the_batch_system_was_told_is_sent_nowhere(live: LiveWorld) -> None:
    job = await submit(live, processes=4)
    live.clock.now += 1
    await live.manager.poll()
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 1
    await live.manager.poll()
    await live.act()
    (gap,) = (live.job(job).walltimes or {})["gaps"]
    assert gap["end"] == "its own batch job has begun" and "stay 100" not in told(live)
    assert live.job(job).state == "running" and live.batch.requests["101"].stands_by_for == "100"


async def test_an_attempt_that_does_not_begin_is_taken_back(live: LiveWorld) -> None:
    job = await sent(live)
    live.batch.free = 0
    for _ in range(5):
        await live.poll(10)
    assert live.batch.of(f"ejb-{job}.1").state is BatchState.CANCELLED
    assert live.job(job).state == "waiting" and not waiting(live, job).blocked and told(live)[-1] == "begin 100"
    assert past(live.store) == [] and (live.job(job).walltimes or {})["gaps"][0]["end"] == "it did not begin in time"


@pytest.mark.parametrize("transient", [True, False])
async def test_an_attempt_that_is_refused_costs_nothing(live: LiveWorld, transient: bool) -> None:
    job = await submit(live, processes=4)
    live.batch.refuse = BatchError("no more jobs", transient=transient)
    for _ in range(3):
        await live.poll(1)
    assert live.job(job).state == "waiting" and len(live.batch.requests) == 1
    assert told(live)[-1] == "begin 100" and not waiting(live, job).blocked
    assert told(live).count("stay 100") == 1, "once a window"


async def test_it_is_sent_a_few_times_and_no_more(live: LiveWorld) -> None:
    job = await submit(live, processes=4)
    live.batch.refuse = BatchError("no more jobs", transient=False)
    for _ in range(20):
        live.batch.others[0] = replace(live.batch.others[0], end_s=live.clock.now + 2 * GAP_S)
        await live.poll(GAP_S)
        await live.poll(1)
    assert told(live).count("stay 100") == gaps.MOST and not waiting(live, job).blocked


@pytest.mark.parametrize("begun", [True, False])
async def test_cancelling_the_job_cancels_both(live: LiveWorld, begun: bool) -> None:
    job = await runs(live) if begun else await sent(live)
    await live.manager.cancel(job, "ada")
    await live.act()
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == "cancelled" and live.batch.live() == [] and "begin 100" not in told(live)


async def test_it_cannot_be_held_on_its_way(live: LiveWorld) -> None:
    job = await sent(live)
    with pytest.raises(EjbError, match="on its way into a gap"):
        await live.manager.hold(job, "ada")
    assert not live.job(job).held


async def test_scancel_of_its_own_batch_job_cancels_the_job(live: LiveWorld) -> None:
    job = await runs(live)
    live.batch.end(f"ejb-{job}.0", BatchState.CANCELLED, None)
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == "cancelled" and live.batch.live() == []


async def test_a_daemon_that_dies_on_the_way_loses_and_doubles_no_run(live: LiveWorld) -> None:
    job = await submit(live, processes=4)
    live.clock.now += 1
    await live.manager.poll()  # it is decided and stored, and the batch system has been told nothing
    assert told(live) == [f"submit ejb-{job}.0"]
    live.batch.lose_answers = 1
    await live.restart()
    await live.poll(1)
    await live.restart()
    for _ in range(3):
        await live.poll(6)
    assert told(live) == [f"submit ejb-{job}.0", "stay 100", f"submit ejb-{job}.1"]
    live.batch.start(f"ejb-{job}.1")
    await live.poll(1)
    live.clock.now += live.batch.of(f"ejb-{job}.1").walltime_s or 0.0
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    live.clock.now += 1
    await live.manager.poll()
    await live.restart()
    await live.poll(1)
    assert told(live)[-1] == "begin 100" and live.job(job).state == "waiting" and len(live.batch.requests) == 2


async def test_who_is_sent_nowhere(tmp_path: Path, store: Store) -> None:
    live = crowded(tmp_path, store, gaps="off")
    job = await submit(live, processes=4)
    await live.poll(1)
    assert len(live.batch.requests) == 1, "off by default"
    live = crowded(tmp_path, store)
    head = live.batch.others.pop()
    await live.poll(1)
    assert len(live.batch.requests) == 0
    live.batch.others.append(head)
    own = await submit(live, processes=4, learned=False)
    wide = await submit(live, processes=8)
    await live.poll(1)
    assert len(live.batch.requests) == 2, (own, wide, "its user's own walltime; wider than the gap")
    assert job != own


async def test_the_head_of_the_queue_is_not_sent(live: LiveWorld) -> None:
    head = live.batch.others.pop()
    job = await submit(live, processes=4)
    first = next(iter(live.batch.jobs.values()))
    live.batch.others = [*live.batch.others, first, head]
    live.batch.jobs.clear()
    await live.poll(1)
    assert len(live.batch.requests) == 1 and live.job(job).state == "waiting"


async def test_explain_tells_who_uses_the_gap_better(live: LiveWorld) -> None:
    learn(live.store, application="thin", processors=2)
    narrow = await submit(live, processes=2, app="thin")
    wide = await submit(live, processes=4)
    await live.poll(1)
    assert [s.role for s in live.subjobs(wide)] == ["standby", "rigid"] and len(live.subjobs(narrow)) == 1
    now = (await live.manager.explain(narrow))["now"]
    assert "not sent into a gap: 4 processors can be had for" in now and f"job {wide} is expected to use more" in now


def test_what_slurm_is_told() -> None:
    assert Begins("7", False).argv()[-1] == "StartTime=now+1000days"
    assert replace(Begins("7", False), begins=True).argv()[-1] == "StartTime=now"
