"""A queue that keeps failing is left alone, told, and tried again by itself; nobody's place in it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.config import Elasticity
from ejbd.core.view import BatchState
from ejbd.errors import BatchError, EjbError
from ejbd.manager.acts.subjobs import add_intent
from ejbd.store.models import Event, Subjob
from ejbd.store.store import Store
from ejbd.wire.kinds import IntentKind
from tests.fakes.live import LiveWorld

BUSY = BatchError("Slurm did not take the job: Slurm's controller does not answer", transient=True)


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    world = LiveWorld(tmp_path, store)
    world.batch.free = 0
    return world


def asked(live: LiveWorld) -> int:
    """How many sbatch there were."""
    return sum(call.startswith("submit ") for call in live.batch.calls)


async def pass_by(live: LiveWorld, seconds: int) -> None:
    """With a look every fifteen seconds, as long as the shortest pause is; the executor comes by, too."""
    for passed in range(0, seconds, 15):
        await live.poll(min(15, seconds - passed))


async def paused(live: LiveWorld, queue: str = "batch") -> list[str]:
    """What of a queue is paused."""
    return [pause["what"] for row in await live.manager.queues() if row["name"] == queue for pause in row["paused"]]


def told(live: LiveWorld, kind: str) -> list[dict[str, object]]:
    return live.store.read_sync(lambda s: list(s.scalars(select(Event.data).where(Event.kind == kind))))


async def test_nobody_hammers_a_batch_system_that_refuses_everything(live: LiveWorld) -> None:
    live.batch.refuse = BUSY
    jobs = [await live.submit() for _ in range(12)]
    await pass_by(live, 480)
    # Up to four at a time before anybody knows; then trials after 15, 60, 60, ... s.
    assert asked(live) <= 6 + 2 + 480 / 60
    assert await paused(live) == ["submissions"]
    assert len(told(live, "queue.paused")) == 1 and "does not answer" in str(told(live, "queue.paused")[0]["reason"])
    now = (await live.manager.explain(jobs[-1]))["now"]
    assert "queue batch is paused, since submissions keep failing: Slurm did not take the job" in now
    assert "`ejb queue resume batch`" in now
    before = asked(live)
    live.batch.refuse = None
    await pass_by(live, 90)
    assert asked(live) == before + 12, "each once: the trial, and the others with it"
    assert sorted(live.batch.of(f"ejb-{job}.0").state for job in jobs) == [BatchState.PENDING] * 12
    assert {live.job(job).state for job in jobs} == {"waiting"}
    assert await paused(live) == [] and len(told(live, "queue.resumed")) == 1


@pytest.mark.sql
async def test_a_pause_outlives_the_daemon_and_a_clock_that_is_set(live: LiveWorld) -> None:
    live.batch.refuse = BUSY
    for _ in range(5):
        await live.submit()
    await pass_by(live, 120)
    assert await paused(live) == ["submissions"]
    before = asked(live)
    await live.restart()
    await live.poll(1)
    assert await paused(live) == ["submissions"] and asked(live) - before <= 1
    live.set_by_s += 3600.0
    await live.poll(1)
    assert await paused(live) == ["submissions"]
    await pass_by(live, 300)
    assert asked(live) - before <= 1 + 300 / 60 + 1
    live.batch.refuse = None
    await pass_by(live, 90)
    assert len(live.batch.live()) == 5


async def test_an_operator_has_it_tried_at_once(live: LiveWorld) -> None:
    live.batch.refuse = BUSY
    jobs = [await live.submit() for _ in range(5)]
    await pass_by(live, 90)
    live.batch.refuse = None
    await live.manager.resume_queue("batch", "root")
    await live.act()
    assert len(live.batch.live()) == len(jobs) and await paused(live) == []
    assert [data["reason"] for data in told(live, "queue.resumed")] == ["resumed by root"]
    with pytest.raises(EjbError, match="queue batch is not paused"):
        await live.manager.resume_queue("batch", "root")
    with pytest.raises(EjbError, match="there is no queue 'other'"):
        await live.manager.resume_queue("other", "root")


async def test_time_outs_of_submissions_pause_a_queue_and_none_is_made_twice(live: LiveWorld) -> None:
    live.batch.hang_submissions = 10**6
    jobs = [await live.submit() for _ in range(8)]
    await pass_by(live, 300)
    assert asked(live) <= 6 + 2 + 300 / 60 and await paused(live) == ["submissions"]
    live.batch.hang_submissions = 0
    await pass_by(live, 120)
    assert sorted(job.name for job in live.batch.live()) == sorted(f"ejb-{job}.0" for job in jobs)


async def test_a_refusal_that_is_the_jobs_own_fault_is_no_failure_of_the_queue(live: LiveWorld) -> None:
    live.batch.refuse = BatchError("Slurm did not take the job: the account is not allowed", transient=False)
    jobs = [await live.submit() for _ in range(6)]
    await pass_by(live, 60)
    assert {live.job(job).state for job in jobs} == {"failed"} and await paused(live) == []
    live.batch.refuse = BatchError("Reservation is not usable", transient=True, own_fault=True)
    jobs = [await live.submit() for _ in range(6)]
    await pass_by(live, 60)
    assert {live.job(job).state for job in jobs} == {"waiting"} and await paused(live) == []
    live.batch.refuse = None
    other = await live.submit()
    assert live.batch.of(f"ejb-{other}.0").state is BatchState.PENDING, "at once"


async def test_one_job_that_is_refused_again_and_again_holds_up_no_other(live: LiveWorld) -> None:
    live.batch.refuse = BUSY
    await live.submit()
    await pass_by(live, 60)
    assert await paused(live) == ["submissions"]
    live.batch.refuse = None
    other = await live.submit()
    assert live.batch.of(f"ejb-{other}.0").state is BatchState.PENDING, "at once, and with it the first one"
    await live.act()
    assert len(live.batch.live()) == 2 and await paused(live) == []


@pytest.mark.sql
async def test_other_queues_go_on(live: LiveWorld) -> None:
    live.batch.queues = ("batch", "other")
    live.batch.refuse, live.batch.refuse_in = BUSY, "batch"
    await live.poll(1)
    for _ in range(70):  # more than the executor is given at a time
        await live.submit()
    others = [await live.submit(queue="other") for _ in range(3)]
    await pass_by(live, 60)
    assert {live.job(job).state for job in others} == {"waiting"} and len(live.batch.live()) == 3
    assert await paused(live) == ["submissions"] and await paused(live, "other") == []


async def test_a_passed_through_job_waits_for_the_batch_system_and_a_minute_at_most(
    tmp_path: Path, store: Store
) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)
    live.batch.refuse = BUSY
    jobs = [await live.submit() for _ in range(3)]
    await pass_by(live, 300)
    live.batch.refuse = None
    await pass_by(live, 60)
    assert len(live.batch.live()) == len(jobs)


# -- starts -----------------------------------------------------------------------------------------------------------


async def workers_die(live: LiveWorld, seconds: int) -> int:
    """Every subjob that is asked for starts, and its worker dies before it has said a word. How many there were."""
    died = 0
    for _ in range(0, seconds, 3):
        await live.poll(3)
        for job in live.batch.live():
            if not job.name.endswith(".0"):
                live.batch.start(job.name)
                await live.poll(1)
                live.batch.end(job.name, BatchState.FAILED, 1)
                await live.poll(1)
                died += 1
    return died


async def test_a_queue_whose_starts_come_to_nothing_is_asked_for_no_more_subjobs(live: LiveWorld) -> None:
    live.batch.free = 4
    jobs = [await live.submit() for _ in range(6)]
    died = await workers_die(live, 150)
    assert died <= 3 + 4, "three until it is known, and one after 15, 60, 300 s"
    assert await paused(live) == ["starts"]
    assert "since starts keep failing" in (await live.manager.explain(jobs[0]))["now"]
    late = await live.submit()
    assert live.batch.of(f"ejb-{late}.0").state is BatchState.PENDING, "places in the queue are none of it"
    assert all(live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING for job in jobs)
    for _ in range(33):  # now they are well
        await live.poll(10)
        begun = next((job for job in live.batch.live() if not job.name.endswith(".0")), None)
        if begun is not None:
            break
    assert begun is not None, "it was tried again by itself"
    await live.begin(begun.name.removeprefix("ejb-"))
    await live.work()
    assert await paused(live) == []


async def test_where_each_job_runs_as_its_own_user_starts_pause_for_that_user_alone(
    live: LiveWorld,
) -> None:
    live.manager.world.hands.by_user = True
    live.batch.free = 4
    theirs = [await live.submit(options=("--account=physics",)) for _ in range(6)]
    await workers_die(live, 60)
    assert [event["whose"] for event in told(live, "queue.paused")] == ["ada/physics/"]
    assert "for ada in account physics, since starts" in (await live.manager.explain(theirs[0]))["now"]
    ours = await live.submit(options=("--account=chemistry",))
    for _ in range(30):
        await live.poll(1)
        if begun := [job for job in live.batch.live() if job.name.startswith(f"ejb-{ours}.") and job.name[-2:] != ".0"]:
            break
    assert begun, "what one user's files do to its subjobs says nothing of another's"


async def test_windows_that_others_took_are_no_failure_of_the_queue(live: LiveWorld) -> None:
    live.batch.free = 4
    for _ in range(4):
        await live.submit()
    await pass_by(live, 400)
    assert any(not request.tag.endswith(".0") for request in live.batch.requests.values())
    assert await paused(live) == []


async def test_a_job_that_was_refused_until_it_was_cancelled_leaves_nothing_to_do_behind(live: LiveWorld) -> None:
    """Its cancellation was for a batch job that there never was, and stayed pending for ever."""
    await live.poll()
    live.batch.refuse = BatchError("a limit on jobs in the queue is reached", transient=True)
    job = await live.submit()
    assert live.subjobs(job)[0].state == "planned" and live.intents("submit")[0].attempts == 1
    await live.manager.cancel(job, "ada")
    await live.act()
    assert live.job(job).state == "cancelled" and live.subjobs(job)[0].state == "cancelled"
    assert [intent.state for intent in live.intents("cancel")] == ["dropped"]


async def test_a_passed_through_job_that_was_refused_until_it_was_cancelled_ends(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)
    live.batch.refuse = BatchError("a limit on jobs in the queue is reached", transient=True)
    await live.poll()
    job = await live.submit()
    more = [await live.submit() for _ in range(5)]
    assert await paused(live), "and its queue is paused"
    asked = len(live.batch.calls)
    await live.manager.cancel(job, "ada")
    await live.act()
    assert (live.job(job).state, live.subjobs(job)[0].state) == ("cancelled", "cancelled")
    assert "cancelled" not in {live.job(one).state for one in more}
    assert not [call for call in live.batch.calls[asked:] if call.startswith("submit")]


async def test_what_a_daemon_before_left_pending_for_ever_is_dropped(live: LiveWorld) -> None:
    await live.poll()
    live.batch.refuse = BatchError("there is no such account", transient=False)
    job = await live.submit()
    subjob = live.subjobs(job)[0]
    assert subjob.state == "failed"

    def strand(session: Session) -> None:
        ctx = live.manager.world.context(session)
        add_intent(ctx, IntentKind.CANCEL, job, subjob=session.get_one(Subjob, subjob.id))

    await live.store.write(strand)
    await live.restart()
    assert [intent.state for intent in live.intents("cancel")] == ["dropped"]


FULL = BatchError(
    "Slurm did not take the job: a limit on jobs in the queue is reached", transient=True, of_account=True
)


@pytest.mark.sql
async def test_the_limit_of_one_account_keeps_nobody_else_from_submitting(live: LiveWorld) -> None:
    live.batch.refuse, live.batch.refuse_of = FULL, "physics"
    theirs = [await live.submit(options=("--account=physics",)) for _ in range(6)]
    await pass_by(live, 300)
    assert asked(live) < 4 + 3 + 300 / 60, "physics is left alone"
    ours = [await live.submit(options=("--account=chemistry",)) for _ in range(6)]
    await pass_by(live, 5)
    assert [live.batch.of(f"ejb-{job}.0").state for job in ours] == [BatchState.PENDING] * 6
    assert [event["whose"] for event in told(live, "queue.paused")] == ["ada/physics/"]
    now = (await live.manager.explain(theirs[-1]))["now"]
    assert "queue batch is paused for ada in account physics, since submissions keep failing" in now
    assert "paused" not in (await live.manager.explain(ours[0]))["now"]
    assert await paused(live) == ["submissions"], "it works elsewhere, which says nothing of physics"
    live.batch.refuse = None
    await pass_by(live, 90)
    assert [live.batch.of(f"ejb-{job}.0").state for job in theirs] == [BatchState.PENDING] * 6
    assert await paused(live) == []


async def test_a_subjob_that_a_limit_refuses_pauses_no_queue(live: LiveWorld) -> None:
    """It may be charged to another account, and its job waits by itself."""
    live.batch.free = 4
    jobs = [await live.submit(32, walltime_s=1000.0) for _ in range(3)]
    live.batch.refuse, live.batch.refuse_role = FULL, ".1"
    await pass_by(live, 200)
    assert await paused(live) == []
    assert [live.batch.of(f"ejb-{job}.0").state for job in jobs] == [BatchState.PENDING] * 3


@pytest.mark.sql
async def test_the_limit_of_one_qos_keeps_no_job_of_the_same_user_in_another_waiting(live: LiveWorld) -> None:
    live.batch.refuse, live.batch.refuse_qos = FULL, "short"
    theirs = [await live.submit(options=("--qos=short",)) for _ in range(6)]
    await pass_by(live, 120)
    asked_of_short = asked(live)
    assert asked_of_short < 4 + 3 + 120 / 60, "short is left alone"
    others = [await live.submit(options=("--qos=long",)) for _ in range(4)] + [await live.submit() for _ in range(2)]
    await pass_by(live, 5)
    assert [live.batch.of(f"ejb-{job}.0").state for job in others] == [BatchState.PENDING] * 6
    assert [event["whose"] for event in told(live, "queue.paused")] == ["ada//short"]
    now = (await live.manager.explain(theirs[-1]))["now"]
    assert "queue batch is paused for ada in the default account and QOS short, since submissions keep failing" in now
    assert "paused" not in (await live.manager.explain(others[0]))["now"]
    assert await paused(live) == ["submissions"], "it works in long, which says nothing of short"
    live.batch.refuse = None
    await live.manager.resume_queue("batch", "root")
    await pass_by(live, 5)
    assert [live.batch.of(f"ejb-{job}.0").state for job in theirs] == [BatchState.PENDING] * 6
    assert await paused(live) == []
