"""What becomes of an end, as a table: every kind of end, all combinations of its facts. And who may change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from ejbd.config import Elasticity, Limits
from ejbd.core.view import BatchState
from ejbd.manager.effects.ends import (
    Again,
    ApplicationEnded,
    CancelAsked,
    End,
    Final,
    GoesOn,
    NothingCameOfIt,
    Outcome,
    OutputRefused,
    PassedThroughEnded,
    PeersFailed,
    PlaceholderEnded,
    PlacementFailed,
    PlanOutlived,
    ShellLost,
    SubmissionRefused,
    TimeUsedUp,
)
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.pauses import PAUSES_S, move_pause_s, pause_s, placement_pause_s
from ejbd.manager.facts.subscribers import Subscribers
from ejbd.manager.rules.ends.outcomes import outcome
from ejbd.manager.world import SUBSCRIBERS
from ejbd.store.models import Mark, Run
from ejbd.store.store import Store
from ejbd.wire.kinds import SubjobRole
from ejbd.wire.states import JobState, SubjobState
from tests.fakes.live import LiveWorld

LIMITS = Limits(max_setbacks=3, start_grace_s=30.0)
ENDED = [state for state in BatchState if state.ended]
FACTS: dict[type, st.SearchStrategy[Any]] = {kind: st.from_type(kind) for kind in get_args(End)}
FACTS[PassedThroughEnded] = st.builds(PassedThroughEnded, state=st.sampled_from(ENDED))


# -- pauses -----------------------------------------------------------------------------------------------------------


def test_the_ladder() -> None:
    assert [pause_s(n) for n in range(8)] == [0, 1, 5, 15, 60, 300, 300, 300]
    assert [pause_s(n, free=1, first_s=5.0) for n in range(1, 7)] == [0, 5, 15, 60, 300, 300], "a lost J0"
    assert [pause_s(n, first_s=60.0) for n in range(1, 4)] == [60, 300, 300], "subjobs that come to nothing"
    assert [pause_s(n, first_s=30.0) for n in range(1, 5)] == [30, 60, 300, 300], "with another grace"
    assert [placement_pause_s(n) for n in range(7)] == [0, 0, 1, 5, 15, 30, 30], "it holds its processors"
    assert [move_pause_s(lambda_s) for lambda_s in (1.0, 120.0, 900.0)] == [10, 120, 900]


@given(st.integers(0, 100), st.integers(0, 3), st.floats(0, 1000, allow_nan=False), st.floats(0, 1000, allow_nan=False))
def test_a_pause_grows_with_failures_and_stays_within_its_bounds(
    failures: int, free: int, first_s: float, most_s: float
) -> None:
    now, then = (pause_s(n, free=free, first_s=first_s, most_s=most_s) for n in (failures, failures + 1))
    assert 0 <= now <= then <= max(most_s, first_s)
    assert (now == 0) == (failures <= free) or max(most_s, first_s) == 0
    assert failures <= free or now >= min(first_s, max(most_s, first_s))


# -- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(End))
def test_every_end_has_an_outcome_that_can_be_carried_out(kind: type) -> None:
    @given(FACTS[kind])
    def holds(end: End) -> None:
        decided = outcome(end, LIMITS)
        if isinstance(decided, Final):
            assert decided.state.terminal
            assert (decided.state is JobState.COMPLETED) == (decided.reason == "") or not getattr(end, "said", "x")
        elif isinstance(decided, Again):
            assert 0 <= decided.after_s <= max(PAUSES_S[-1], LIMITS.start_grace_s)
            assert decided.walltime_s is None, "that is for subscribers to ask for"
            assert not decided.whole or isinstance(end, TimeUsedUp), "where nothing ran in it, or not all of its time"

    holds()


@pytest.mark.parametrize(
    ("state", "code", "becomes"),
    [
        (BatchState.COMPLETED, 0, Final(JobState.COMPLETED, "", 0)),
        (BatchState.COMPLETED, None, Final(JobState.COMPLETED, "", 0)),
        (BatchState.FAILED, 7, Final(JobState.FAILED, "so", 7)),
        (BatchState.TIMEOUT, None, Final(JobState.TIMEOUT, "so", None)),
        (BatchState.CANCELLED, None, Final(JobState.CANCELLED, "so", None)),
        (BatchState.NODE_FAIL, None, Final(JobState.FAILED, "so", None)),
        (BatchState.PREEMPTED, None, Final(JobState.FAILED, "so", None)),
    ],
)
def test_a_passed_through_job_ends_as_its_batch_job(state: BatchState, code: int | None, becomes: Outcome) -> None:
    assert outcome(PassedThroughEnded(state, code, "so"), LIMITS) == becomes


def test_a_j0_that_had_begun_its_script_at_once_and_was_taken_away_is_run_again_for_some_times() -> None:
    end = PassedThroughEnded(BatchState.NODE_FAIL, None, "so", lost=True)
    assert outcome(end, LIMITS) == Again(reason="so", setback=True, whole=True)
    assert outcome(replace(end, setbacks=99), LIMITS) == Final(JobState.FAILED, "so", None)


def test_ends_of_the_application() -> None:
    assert outcome(ApplicationEnded(0, "x"), LIMITS) == Final(JobState.COMPLETED, "", 0)
    assert outcome(ApplicationEnded(3, "it said so"), LIMITS) == Final(JobState.FAILED, "it said so", 3)
    assert outcome(OutputRefused(181, "no such folder"), LIMITS) == Final(JobState.FAILED, "no such folder", 181, 53)
    assert outcome(ShellLost("gone"), LIMITS) == Final(JobState.FAILED, "gone", None)
    assert outcome(ShellLost("gone", again=True), LIMITS) == Again(reason="gone", setback=True)
    assert outcome(ShellLost("gone", again=True, counted=True, setbacks=99), LIMITS) == Again(reason="gone")
    assert outcome(ShellLost("gone", again=True, setbacks=99), LIMITS) == Final(JobState.FAILED, "gone", None)
    assert outcome(CancelAsked("cancelled by ada"), LIMITS) == Final(JobState.CANCELLED, "cancelled by ada", None)
    used = outcome(TimeUsedUp("it", 60.0), LIMITS)
    assert used == Final(JobState.TIMEOUT, "it reached its time limit of 60 s", None)


def test_an_outlived_plan_is_saved_once_and_whenever_it_was_the_batch_systems_doing() -> None:
    for savable, cut_short, overruns in product((True, False), (True, False), (0, 1, 2)):
        decided = outcome(PlanOutlived(savable, cut_short, overruns, 60.0, "slow"), LIMITS)
        if savable and (cut_short or overruns == 0):
            assert decided == Again(reason="slow")
        else:
            assert decided == Final(JobState.TIMEOUT, "slow (it asked for 60 s at full width)")


def test_placements_fail_so_often_and_no_more() -> None:
    decided = [outcome(PlacementFailed(n, "broken"), LIMITS) for n in range(5)]
    assert decided[:3] == [Again(reason="broken", setback=True)] * 3
    assert decided[3] == Final(JobState.FAILED, "broken; given up after 4 failed placements")
    assert [outcome(PeersFailed(n, "x"), LIMITS) for n in (2, 3)] == [Again(reason="x", setback=True), GoesOn()]


def _placeholders() -> Iterator[PlaceholderEnded]:
    states = [state for state in SubjobState if state.terminal]
    for state, released, counted, waiting, setbacks in product(
        states, (True, False), (True, False), (True, False), range(6)
    ):
        yield PlaceholderEnded(state, released, counted, waiting, setbacks, "j.0")


def test_a_lost_j0_comes_again_with_pauses_unless_somebody_cancelled_it() -> None:
    for end in _placeholders():
        decided, after = outcome(end, LIMITS), end.setbacks + (not end.counted)
        if end.state is SubjobState.CANCELLED and not end.released:
            assert isinstance(decided, Final) and decided.state is JobState.CANCELLED
        elif after <= LIMITS.max_setbacks:
            assert isinstance(decided, Again) and decided.setback is not end.counted
            assert decided.after_s == [0, 0, 5, 15][after]
        elif end.waiting:
            assert isinstance(decided, Final) and decided.state is JobState.FAILED
        else:
            assert decided == GoesOn()


def test_a_refused_submission() -> None:
    for role, transient, placed in product(SubjobRole, (True, False), (True, False)):
        decided = outcome(SubmissionRefused(role, transient, not transient, 3, 1, placed, "no"), LIMITS)
        if transient:
            assert decided == Again(15.0, "no")
        elif role is SubjobRole.SUBJOB:
            assert decided == Again(60.0, "no"), "as any subjob that comes to nothing: its second"
        else:
            assert decided == (GoesOn() if placed else Final(JobState.FAILED, "no"))
    assert outcome(NothingCameOfIt(0, True, "x"), LIMITS) == Again(30.0)


# -- subscribers ------------------------------------------------------------------------------------------------------


def next_walltime(world: JobWorld, end: End, decided: Outcome) -> Outcome | None:
    """What issue-to-come policies do: a run that was too short is done again with twice the time, once."""
    if isinstance(decided, Final) and decided.state is JobState.TIMEOUT and world.job.walltime_s < 150:
        return Again(5.0, "its next walltime", whole=True, walltime_s=2 * world.job.walltime_s)
    return None


def subscribe(live: LiveWorld, *asked: Any, told: tuple[Any, ...] = ()) -> None:
    live.manager.world.subscribers = Subscribers(asked, (*SUBSCRIBERS.told, *told))


async def until_submitted(live: LiveWorld, ordinal: str) -> None:
    for _ in range(10):
        await live.poll(1)
        if any(job.name.endswith(ordinal) for job in live.batch.jobs.values()):
            return
    raise AssertionError(f"nothing with {ordinal} was submitted")


async def test_a_subscriber_gives_a_passed_through_job_its_next_walltime(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)
    subscribe(live, next_walltime)
    job = await live.submit(walltime_s=100.0)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(1)
    row = live.job(job)
    assert (row.state, row.walltime_s, row.incarnation) == ("waiting", 200.0, 2)
    assert len(live.batch.requests) == 1, "not before its pause is over"
    await until_submitted(live, ".1")
    assert live.batch.of(f"ejb-{job}.1").walltime_s == 200.0
    live.batch.start(f"ejb-{job}.1")
    await live.poll(1)
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    await live.poll(1)
    assert live.job(job).state == "timeout", "once was enough"
    again = [data for kind, data in live.events(job) if kind == "job.again"]
    assert [(data["walltime_s"], data["pause_s"], data["reason"]) for data in again] == [(200, 5, "its next walltime")]


async def test_a_subscriber_gives_an_elastic_job_its_next_walltime_and_its_work_stays(live: LiveWorld) -> None:
    """It ran on a subjob, moved to J0, and J0's time is up: the next J0 resumes from the checkpoint of that move."""
    subscribe(live, next_walltime)
    job = await live.submit(walltime_s=100.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.poll(50)
    await live.begin(f"{job}.0")
    for _ in range(4):
        await live.work()
        await live.poll(1)
    assert live.job(job).members == [f"{job}.0"] and live.job(job).state == "running"
    kept = live.job(job).work_s
    for _ in range(8):
        await live.poll(14)
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(1)
    row = live.job(job)
    assert (row.state, row.walltime_s, row.members) == ("waiting", 200.0, [])
    assert row.work_s == pytest.approx(kept, abs=1) and kept > 0, "as of the last checkpoint"
    await until_submitted(live, ".2")
    assert live.batch.of(f"ejb-{job}.2").walltime_s == 200.0
    await live.begin(f"{job}.2")
    for _ in range(3):
        await live.work()
        await live.poll(1)
    assert live.job(job).state == "running" and live.epochs(job)[-1].restart_from == 1
    await live.workers[f"{job}.2"].finish_ranks(live.epochs(job)[-1].number)
    for _ in range(3):
        await live.work()
        await live.poll(12)
    assert live.job(job).state == "completed" and live.batch.live() == []


def once_more(world: JobWorld, end: End, decided: Outcome) -> Outcome | None:
    """What a policy's AGAIN does: the whole job is done again after the first failure of its ranks."""
    if isinstance(end, ApplicationEnded) and isinstance(decided, Final) and not world.job.setbacks:
        return Again(reason="once more", setback=True, whole=True)
    return None


async def test_an_application_that_failed_is_launched_again_where_a_subscriber_says_so(live: LiveWorld) -> None:
    subscribe(live, once_more)
    job = await live.submit(walltime_s=100.0)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.work()
    await worker.finish_ranks(1, code=7)
    for _ in range(3):
        await live.work()
        await live.poll(1)
    assert (live.job(job).state, live.job(job).setbacks) == ("waiting", 1)
    await until_submitted(live, ".2")
    second = await live.begin(f"{job}.2")
    for _ in range(3):
        await live.work()
        await live.poll(1)
    assert [(e.launch_ordinal, e.state) for e in live.epochs(job)] == [(0, "failed"), (0, "running")]
    await second.finish_ranks(2)
    for _ in range(3):
        await live.work()
        await live.poll(1)
    assert (live.job(job).state, live.job(job).exit_code) == ("completed", 0)


async def test_a_cancelled_job_is_cancelled_whatever_subscribers_say(live: LiveWorld) -> None:
    subscribe(live, lambda world, end, decided: Again(0.0, "never ends", whole=True))
    job = await live.submit()
    await live.manager.cancel(job, "ada")
    await live.poll(1)
    assert live.job(job).state == "cancelled" and live.batch.live() == []


async def test_a_subscribers_fault_harms_nobody_and_leaves_nothing_half_done(tmp_path: Path, store: Store) -> None:
    heard: list[str] = []

    def breaks(world: JobWorld, end: End, decided: Outcome) -> Outcome | None:
        world.ctx.session.add(Mark(name="half-done", value="x"))
        world.job.walltime_s = 1.0
        world.ctx.session.flush()
        raise RuntimeError("a bug of a policy")

    def hears(world: JobWorld, end: End, decided: Outcome) -> None:
        heard.append(f"{world.job.id} {type(end).__name__} {type(decided).__name__}")

    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)
    subscribe(live, breaks, told=(breaks, hears))
    job, other = await live.submit(walltime_s=100.0), await live.submit(walltime_s=100.0)
    for id in (job, other):
        live.batch.start(f"ejb-{id}.0")
    await live.poll(100)
    for id in (job, other):
        live.batch.end(f"ejb-{id}.0")
    await live.poll(1)
    for id in (job, other):
        row = live.job(id)
        assert (row.state, row.exit_code, row.walltime_s) == ("completed", 0, 100.0)
        faults = [data["error"] for kind, data in live.events(id) if kind == "job.fault"]
        assert faults == ["breaks: a bug of a policy"] * 2
    assert heard == [f"{id} PassedThroughEnded Final" for id in (job, other)], "once each, and whoever broke before"
    assert store.read_sync(lambda s: s.scalars(select(Mark).where(Mark.name == "half-done")).all()) == []
    assert len(store.read_sync(lambda s: s.scalars(select(Run)).all())) == 2, "what is learnt of runs is a subscriber"


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)
