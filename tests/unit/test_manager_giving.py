"""The guard, live: what is held over-subscribed goes back to whoever waits and would fit, and to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.bundling.guard import longest_coming_s
from ejbd.core.question import Question
from ejbd.core.view import PASS_S, BatchJobView, BatchState, ClusterView, Reservations, SiteReservation
from ejbd.manager.acts.pastruns import take_in
from ejbd.manager.facts import promises
from ejbd.manager.jobspec import JobKind, JobSpec, Reading
from ejbd.store.store import Store
from ejbd.wire.toldruns import ToldRun
from tests.fakes.live import LiveWorld, some

WAITS = BatchJobView("77", "other", "eve", "batch", BatchState.PENDING, 4, 600.0, reason="Resources")


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Callable[..., LiveWorld]:
    return lambda **queue: LiveWorld(tmp_path, store, **queue)


async def over_subscribed(live: LiveWorld, processes: int = 16, **spec: Any) -> str:
    """A job of 16 ranks on the only 4 processors that were free, with an end that is far away."""
    live.batch.free = 4
    job = await live.submit(processes, walltime_s=1000.0, **spec)
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.poll(20)
    assert (live.job(job).state, live.epochs(job)[-1].state) == ("running", "running"), live.events(job)
    return job


def given(live: LiveWorld, job: str) -> list[dict[str, Any]]:
    """The decisions of a job to give back."""
    return [data for kind, data in live.events(job) if kind == "decision.suspend" and "given_to" in data]


async def suspended(live: LiveWorld, job: str) -> None:
    """Its checkpoint is written, and its subjob ends."""
    await live.work()
    await live.act()
    live.batch.end(f"ejb-{job}.1")


async def test_a_waiting_job_gets_the_room_and_the_work_is_kept(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [WAITS]
    await live.poll(5)
    (told,) = given(live, job)
    assert told["given_to"] == "77" and told["leaves"] == [f"{job}.1"]
    why = "job 77 of eve, which waits first, fits into the 4 processors that this job holds over-subscribed"
    assert told["reason"] == told["decision"]["reason"] == why
    question = Question.from_json(told["question"])
    assert question.answer().to_json() == told["decision"], "asked again it says the same"
    assert question.to_json() == told["question"]

    await suspended(live, job)
    row = live.job(job)
    assert (row.state, row.setbacks, row.overruns) == ("waiting", 0, 0)
    assert row.work_s == pytest.approx(25 / 4, abs=1.5)
    assert live.epochs(job)[-1].state == "stopped"
    explained = await live.manager.explain(job)
    assert explained["decisions"][-1]["decision"]["reason"] == why

    live.batch.free = 4
    await live.poll(1)
    await live.poll(30)
    assert len(live.subjobs(job)) == 2, "it is kept for who waits"
    assert "room is kept for job 77 of eve" in (await live.manager.explain(job))["now"]
    assert [w["kept_for"] for w in await live.manager.windows("batch")] == [{"job": "77", "user": "eve"}]
    live.batch.others = [replace(WAITS, state=BatchState.RUNNING, end_s=live.clock() + 600)]
    live.batch.free = 0
    await live.poll(5)
    live.batch.others, live.batch.free = [], 4
    await live.poll(5)
    assert [w["kept_for"] for w in await live.manager.windows("batch")] == [None]
    assert len(live.subjobs(job)) == 3, "and is free again once he has started and ended"
    live.batch.free = 0
    await live.begin(f"{job}.2")
    await live.poll(1)
    await live.work()
    assert [epoch.restart_from for epoch in live.epochs(job)] == [None, 1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "who",
    [
        replace(WAITS, blocked=True, reason="Dependency"),
        replace(WAITS, state=BatchState.HELD, reason="JobHeldUser"),
        replace(WAITS, processors=5),
        replace(WAITS, queue="elsewhere"),
    ],
    ids=["dependent", "held", "too wide", "another queue"],
)
async def test_nobody_else_gets_it(world: Callable[..., LiveWorld], who: BatchJobView) -> None:
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [who]
    for _ in range(3):
        await live.poll(5)
    assert given(live, job) == [] and live.job(job).state == "running"


async def test_not_for_the_j0_of_a_job_where_nodes_are_drained_for_an_operator(world: Callable[..., LiveWorld]) -> None:
    live = world()
    live.settings.batch = "slurm"  # whose submissions can be kept off nodes
    live.batch.node_processors = 4
    job = await over_subscribed(live)
    await live.manager.drain("n[1-8]", live.clock() + 900, "root")
    live.batch.free = 12  # with the 4 that it holds its J0 would fit
    for _ in range(3):
        await live.poll(5)
    assert given(live, job) == [] and live.job(job).state == "running"


async def test_not_where_the_guard_is_off(world: Callable[..., LiveWorld]) -> None:
    live = world(guard="off")
    job = await over_subscribed(live)
    live.batch.others = [WAITS]
    for _ in range(3):
        await live.poll(5)
    assert given(live, job) == [] and live.job(job).state == "running"


async def test_not_from_a_job_on_its_j0_and_not_what_is_free_anyway(world: Callable[..., LiveWorld]) -> None:
    live = world()
    live.batch.free = 0
    whole = await live.submit(4, walltime_s=1000.0)
    await live.begin(f"{whole}.0")
    await live.poll(20)
    live.batch.others = [WAITS]
    await live.poll(5)
    assert given(live, whole) == [] and live.job(whole).state == "running", "each of its ranks has its processor"
    live.batch.others = []
    crowded = await over_subscribed(live)
    live.batch.others, live.batch.free = [WAITS], 4
    await live.poll(5)
    assert given(live, crowded) == [], "the batch system is about to start it"


async def test_not_for_one_who_could_not_start_before_a_maintenance(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [WAITS]
    live.batch.reserved = (SiteReservation("m", live.clock() + 500, live.clock() + 4000, ("n1",)),)
    await live.poll(5)
    assert given(live, job) == []


async def test_its_own_place_holder_behind_the_head_gets_nothing(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [replace(WAITS, processors=32)]
    live.batch.free = 12  # with its own four it would be enough for J0
    live.batch.others[0] = replace(live.batch.others[0], planned_start_s=live.clock())
    await live.poll(5)
    assert given(live, job) == []


async def test_its_own_place_holder_that_waits_first_gets_it(world: Callable[..., LiveWorld]) -> None:
    """It cannot grow onto the twelve that are free, and stands in the way of its own J0."""
    live = world(max_subjobs=1)
    job = await over_subscribed(live)
    live.batch.free = 12
    await live.poll(5)
    (told,) = given(live, job)
    why = "J0 of this job (100), which waits first, fits into the 4 processors that this job holds over-subscribed"
    assert told["reason"] == why + " and the 12 that are free"


async def test_who_gives_back_is_asked_before_any_room_is_offered(world: Callable[..., LiveWorld]) -> None:
    """J0 of a job that comes anew fits into four: it gets them, rather than the two that are free over-subscribed."""
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [replace(WAITS, processors=32, walltime_s=9000.0)]
    other = await live.submit(4, walltime_s=300.0)
    live.batch.free = 2
    await live.poll(5)
    (told,) = given(live, job)
    assert told["given_to"] == live.subjobs(other)[0].batch_id
    assert "decision.start" not in live.kinds(other), "nobody is offered any room that is on its way to who waits"
    await suspended(live, job)
    live.batch.free = 6
    await live.poll(5)
    assert len(live.subjobs(other)) == len(live.subjobs(job)) - 1 == 1


async def test_who_has_been_given_room_of_his_own_is_served(world: Callable[..., LiveWorld]) -> None:
    """A second elastic job runs on two processors by the poll at which its J0 might have asked for four."""
    live = world()
    live.batch.others, live.batch.free = [replace(WAITS, processors=32, walltime_s=9000.0)], 2
    other = await live.submit(4, walltime_s=300.0)
    await live.poll(1)
    assert "decision.start" in live.kinds(other)
    await live.begin(f"{other}.1")
    job = await over_subscribed(live)
    for _ in range(3):
        await live.poll(5)
    assert given(live, job) == []


async def test_a_job_that_is_passed_through_waits_like_any_other(world: Callable[..., LiveWorld]) -> None:
    live = world(min_processors=8)
    job = await over_subscribed(live)
    rigid = await live.submit(4, walltime_s=300.0)
    await live.poll(5)
    assert not live.job(rigid).elastic
    live.batch.others = [replace(WAITS, processors=32, walltime_s=9000.0)]
    await live.poll(5)
    assert [told["given_to"] for told in given(live, job)] == [live.subjobs(rigid)[0].batch_id]


async def test_ranks_of_two_threads_are_two_processors_wide(world: Callable[..., LiveWorld]) -> None:
    """Four ranks on two places: four processors, which is what somebody waits for."""
    live = world()
    job = await over_subscribed(live, 4, threads=2)
    assert live.subjobs(job)[1].processors == 4
    live.batch.others = [WAITS]
    await live.poll(5)
    (told,) = given(live, job)
    assert "fits into the 4 processors that" in told["reason"]
    assert told["question"]["state"]["subjobs"][0]["processors"] == 2


async def test_what_is_free_by_now_is_promised_to_one_only(world: Callable[..., LiveWorld]) -> None:
    """A second one waits for eight: the four that are the first one's are not half of what it needs."""
    live = world()
    live.batch.free = 4
    jobs = [await over_subscribed(live), await over_subscribed(live)]
    live.batch.others = [replace(WAITS, id="70", processors=32), WAITS]
    await live.poll(5)
    (gave,) = [job for job in jobs if given(live, job)]
    await suspended(live, gave)
    live.batch.free = 4
    live.batch.others.append(replace(WAITS, id="78", processors=8))
    for _ in range(3):
        await live.poll(5)
    assert [job for job in jobs if given(live, job)] == [gave]


async def test_room_in_vain_is_used_again_and_not_given_again(world: Callable[..., LiveWorld]) -> None:
    """Who waits has a reason that nobody tells. He keeps the room for a while, once."""
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [WAITS]
    await live.poll(5)
    await suspended(live, job)
    live.batch.free = 4
    await live.poll(5)
    waited = 0.0
    while len(live.subjobs(job)) == 2 and waited < 600:
        await live.poll(10)
        waited += 10
    assert promises.START_PASSES * PASS_S <= waited < promises.START_PASSES * PASS_S + 60
    live.batch.free = 0
    await live.begin(f"{job}.2")
    for _ in range(20):
        await live.poll(30)
        await live.work(2)
    assert len(given(live, job)) == 1 and live.job(job).state == "running"


def test_how_long_room_is_kept_goes_by_the_passes_of_the_scheduler(store: Store) -> None:
    """One that looks every two seconds has had its chance long before two minutes are over."""
    view = ClusterView(0.0, (), (WAITS,), (), Reservations.PROCESSORS, pass_s=2.0)
    made = promises.Promises(read=True)
    made.make(WAITS.id, WAITS.user, "giver", (), 4, 0.0, longest_coming_s(0.0, 0.0))

    def at(now: float) -> bool:
        store.read_sync(lambda session: made.look(session, view, now, 1.0))
        return WAITS.id in made.standing

    assert [at(now) for now in (0.0, 7.0, 9.0)] == [True, True, False]
    assert set(made.in_vain) == {WAITS.id, "giver"}
    at(128.0)
    assert made.in_vain
    at(130.0)
    assert not made.in_vain


async def test_a_daemon_that_is_restarted_keeps_the_room_too(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [WAITS]
    await live.poll(5)
    await live.restart()
    await suspended(live, job)
    live.batch.free = 4
    for _ in range(3):
        await live.poll(10)
    assert len(live.subjobs(job)) == 2, "it would have been taken at the third look"
    live.batch.others = []
    await live.poll(5)
    assert len(live.subjobs(job)) == 3, "who waited was cancelled"


async def test_a_checkpoint_that_never_comes_keeps_the_room_for_a_time_only(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await over_subscribed(live)
    live.workers[f"{job}.1"].deaf.add("checkpoint")
    live.batch.others = [WAITS]
    await live.poll(5)
    assert live.manager.world.memory.promises.standing
    for _ in range(30):
        await live.poll(60)
    assert not live.manager.world.memory.promises.standing


@pytest.mark.sampled(2)
@pytest.mark.parametrize("run_s", [200_000.0, 2_000.0])
async def test_how_long_runs_last_here_says_with_how_long_moves_room_is_borrowed(
    world: Callable[..., LiveWorld], run_s: float
) -> None:
    """Moves of a quarter of an hour: for runs of days they are short, and what is given back may take as long."""
    live = world(lambda_s=900.0)
    past = [ToldRun(at, "eve", "wave", "", 4, run_s, run_s, "completed", 100.0 + at) for at in range(20)]
    live.store.write_sync(lambda session: take_in(session, past))
    live.batch.free = 4
    job = await live.submit(16, walltime_s=20_000.0)
    await live.poll(1)
    if run_s < 10_000.0:
        assert len(live.subjobs(job)) == 1, "over-subscribed room could not be given back in time"
        return
    await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.poll(20)
    live.workers[f"{job}.1"].deaf.add("checkpoint")
    live.batch.others = [WAITS]
    for _ in range(32):
        await live.poll(30)
    (told,) = given(live, job)
    assert told["question"]["parameters"]["runs_s"] == pytest.approx(run_s)
    standing = live.manager.world.memory.promises.standing
    for _ in range(27):
        await live.poll(30)
        assert standing, "the checkpoint may take that long, and more than ten minutes"
    await live.restart()
    await live.poll(30)
    assert live.manager.world.memory.promises.standing["77"].coming_s >= 1800.0, "a new daemon gives it as long"


async def test_a_dry_run_sees_that_room_is_kept(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await over_subscribed(live)
    live.batch.others = [WAITS]
    await live.poll(5)
    live.batch.free = 8
    spec = JobSpec(
        name="heat", kind=JobKind.COMMAND, argv=("./heat",), processes=16, walltime_s=100.0, cwd="/", output="out",
        engine="application",
    )  # fmt: skip
    await live.poll(1)
    said = await live.manager.plan(Reading(spec), "ada")
    other = await live.submit()
    await live.poll(5)
    done = next(data["decision"] for kind, data in live.events(other) if kind.startswith("decision."))
    assert some(said["decision"])["kind"] == done["kind"] == "nothing"
    assert some(said["decision"])["reason"] == done["reason"]
    assert given(live, job)
