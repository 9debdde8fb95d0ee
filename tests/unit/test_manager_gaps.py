"""Rule A, live: into a window that is shorter than the request, and back into the queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.api.models import Explanation
from ejbd.batch.slurm.commands import Begins, BeginsIn
from ejbd.cli.show.jobs import walltime_lines
from ejbd.config import Elasticity
from ejbd.core.speculation.sending import TRIES
from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import BatchError, EjbError
from ejbd.manager.facts.past.classes import Classes
from ejbd.manager.facts.past.pastruns import Application
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_speculating import OWN_S, learn, only, past

pytestmark = pytest.mark.sql

GAP_S = 900.0


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


async def submit(live: LiveWorld, **spec: Any) -> str:
    """A job that may be run again, with its user's own walltime."""
    given: dict[str, Any] = {"walltime_s": OWN_S, "rerunnable": True, "app": "heat"} | spec
    return await live.submit(**given)


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


async def test_it_goes_into_the_gap_while_its_own_batch_job_stays_where_it_is(live: LiveWorld) -> None:
    job = await sent(live)
    attempt = live.batch.of(f"ejb-{job}.1")
    own = waiting(live, job)
    assert told(live) == [f"submit ejb-{job}.0", "stay 100", f"submit ejb-{job}.1"], "kept from beginning first"
    assert own.state is BatchState.PENDING and own.blocked and not attempt.blocked
    walltime_s = attempt.walltime_s or 0.0
    assert GAP_S - 60 < walltime_s < GAP_S - 40 and own.walltime_s == OWN_S
    assert [s.role for s in live.subjobs(job)] == ["standby", "rigid"]
    (gap,) = (live.job(job).walltimes or {})["gaps"]
    assert (gap["walltime_s"], gap["processors"]) == (walltime_s, 4) and 0.9 < gap["finishes"] < 1.0
    why = f"of 40 runs of its application were over within {walltime_s:g} s"
    assert gap["by"].endswith(why)
    explained = await live.manager.explain(job)
    assert f"sent into a gap of 4 processors with {walltime_s:g} s: {gap['by']}" in explained["now"]
    (reason,) = [data["reason"] for kind, data in live.events(job) if kind == "job.gap"]
    assert reason == f"4 processors can be had for {walltime_s:g} s; {gap['by']}"
    known = Explanation.model_validate(explained).walltimes
    assert known is not None and any("sent into a gap" in line for line in walltime_lines(known.model_dump()))
    await live.poll(5)
    assert len(live.batch.requests) == 2


async def test_several_go_at_a_time_and_no_more_than_have_room(live: LiveWorld) -> None:
    """Four processors: the first two jobs of two; the third has none left, now and while they are on their way."""
    learn(live.store, application="thin", processors=2)
    jobs = [await submit(live, processes=2, app="thin") for _ in range(3)]
    await live.poll(1)
    assert "others that wait before it take the room" in (await live.manager.explain(jobs[2]))["now"]
    for _ in range(3):
        assert [len(live.subjobs(job)) for job in jobs] == [2, 2, 1]
        await live.poll(5)
    (third,) = live.subjobs(jobs[2])
    assert third.state == "pending" and not waiting(live, jobs[2]).blocked


async def test_a_job_with_a_learned_walltime_is_sent_too(live: LiveWorld) -> None:
    live.batch.others[0] = replace(live.batch.others[0], end_s=live.clock.now + 770)
    job = await submit(live, processes=4, learned=True)
    first_s = (live.job(job).walltimes or {})["sequence_s"][0]
    await live.poll(1)
    attempt = live.batch.of(f"ejb-{job}.1")
    assert (attempt.walltime_s or 0.0) < 770 < first_s == waiting(live, job).walltime_s
    live.batch.start(f"ejb-{job}.1")
    await live.poll(1)
    live.clock.now += attempt.walltime_s or 0.0
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    await live.poll(1)
    row = live.job(job)
    assert (row.state, row.walltime_s, (row.walltimes or {})["at"]) == ("waiting", first_s, 0)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    assert live.batch.requests[live.batch.of(f"ejb-{job}.2").id].stands_by_for == "100", "for the second walltime"


async def test_nobody_goes_whose_odds_are_too_low(live: LiveWorld) -> None:
    live.batch.others[0] = replace(live.batch.others[0], end_s=live.clock.now + 700)
    job = await submit(live, processes=4)
    await live.poll(1)
    now = (await live.manager.explain(job))["now"]
    assert len(live.batch.requests) == 1 and "of 40 runs of its application" in now and "less than 80%" in now


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
    assert (row.state, row.walltime_s) == ("waiting", OWN_S)
    assert told(live)[-1] == "begin 100" and not waiting(live, job).blocked and len(live.batch.requests) == 2
    only(live.store, attempt.walltime_s or 0.0, "timeout")
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    assert len(live.batch.requests) == 2, "its request was the last"
    live.clock.now += OWN_S - 1
    live.batch.end(f"ejb-{job}.0", BatchState.COMPLETED, 0)
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == "completed" and [run.outcome for run in past(live.store)] == ["completed"]
    assert [job.state for job in live.batch.live()] == []


async def test_the_next_window_has_to_be_twice_as_long(live: LiveWorld) -> None:
    job = await runs(live)
    live.clock.now += GAP_S
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    await live.poll(1)
    for length_s, attempts in ((GAP_S * 1.5, 1), (GAP_S * 2.5, 2)):
        live.batch.free = 4
        live.batch.others[0] = replace(live.batch.others[0], end_s=live.clock.now + length_s)
        await live.poll(1)
        assert len(live.batch.requests) == 1 + attempts
        if attempts == 1:
            assert "were not enough, and the next window has to be 2 times" in (await live.manager.explain(job))["now"]


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
    await live.manager.poller.poll()
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 1
    await live.manager.poller.poll()
    await live.act()
    (gap,) = (live.job(job).walltimes or {})["gaps"]
    assert gap["end"] == "its own batch job has begun" and "stay 100" not in told(live)
    assert live.job(job).state == "running" and len(live.batch.requests) == 1


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
    assert told(live).count("stay 100") == TRIES and not waiting(live, job).blocked


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
    await live.manager.poller.poll()  # it is decided and stored, and the batch system has been told nothing
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
    await live.manager.poller.poll()
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
    others = [
        await submit(live, processes=4, learned=False),
        await submit(live, processes=8),
        await submit(live, processes=4, rerunnable=False),
    ]
    await live.poll(1)
    assert len(live.batch.requests) == 3, "--walltime own; wider than the gap; not to be run again"
    assert len(live.subjobs(job)) == 1, "it is the first of those that wait here"
    assert "no window that ends has 8 processors" in (await live.manager.explain(others[1]))["now"]


async def test_the_head_of_the_queue_is_not_sent(live: LiveWorld) -> None:
    head = live.batch.others.pop()
    job = await submit(live, processes=4)
    first = next(iter(live.batch.jobs.values()))
    live.batch.others = [*live.batch.others, first, head]
    live.batch.jobs.clear()
    await live.poll(1)
    assert len(live.batch.requests) == 1 and live.job(job).state == "waiting"


def test_the_classes_of_a_job_the_nearest_first() -> None:
    rows = [
        ("ada", "heat", 4, "", 100.0, 1000.0, "completed"),
        ("ada", "heat", 4, "", 300.0, 1000.0, "timeout"),
        ("ada", "heat", 4, "", 1000.0, 1000.0, "timeout"),
        ("ada", "wave", 4, "", 200.0, 1000.0, "failed"),
        ("ada", "wave", 8, "", 500.0, 1000.0, "completed"),
        ("ada", "wave", 8, "", 500.0, 5000.0, "completed"),
        ("bob", "heat", 4, "", 50.0, 500.0, "completed"),
    ]
    known = Classes(rows).of(Application("ada", "heat", 4), 1000.0)
    assert [(list(one.runs), one.unit_s) for one in known] == [
        ([100.0, 1000.0], 1.0),
        ([100.0, 200.0, 1000.0], 1.0),
        ([100.0, 200.0, 500.0, 1000.0], 1.0),
        ([0.1, 0.1, 0.2, 0.5, 1.0], 1000.0),
        ([0.1, 0.1, 0.1, 0.2, 0.5, 1.0], 1000.0),
    ], "what was cut short for less than it asks for is not over"
    assert Classes(rows).of(Application("eve", "heat", 4), 2000.0)[0].upto(1000.0) == 5
    assert Classes([]).of(Application("eve", "heat", 4), 2000.0) == []


def test_what_slurm_is_told() -> None:
    assert Begins("7", False).argv()[-1] == "StartTime=now+1000days"
    assert BeginsIn("7", 3600.0).argv()[-1] == "StartTime=now+3600"
    assert replace(Begins("7", False), begins=True).argv()[-1] == "StartTime=now"
