"""What is to come of a job: by its plan, and by what the policy will say once J0 starts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import expected_completion
from ejbd.core.bundling.policy import Bundling
from ejbd.core.decision import DecisionKind
from ejbd.core.outlook import outlook
from ejbd.core.shapes import BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline, from_now, until
from tests.unit.test_core_bundling_properties import NOW, worlds

PAPER = BundlingParameters(lambda_s=100)


def told(timeline: PlannedTimeline) -> list[tuple[str, float, float, int, int, bool]]:
    return [(i.kind.value, i.start_s, i.end_s, i.processors, i.degree, i.on_placeholder) for i in timeline]


def state(*held: tuple[int, float], work_s: float = 0.0) -> ElasticState:
    """16 processes, 1000 s asked for."""
    subjobs = tuple(HeldSubjob(f"j.{n}", p, end_s) for n, (p, end_s) in enumerate(held, 1))
    return ElasticState("j", 16, 1000.0, work_s, subjobs)


def test_a_job_that_waits_starts_on_its_place_holder() -> None:
    assert told(outlook(state(), (), 50, None, Bundling(PAPER))) == [("wait", 50, math.inf, 0, 0, False)]
    assert told(outlook(state(), (), 50, 250, Bundling(PAPER))) == [
        ("wait", 50, 250, 0, 0, False),
        ("run", 250, 1250, 16, 1, True),
    ]
    # The time at which it should have started has passed: it is now.
    assert told(outlook(state(), (), 300, 250, Bundling(PAPER))) == [("run", 300, 1300, 16, 1, True)]


def test_a_job_that_waits_with_work_kept_moves_to_its_place_holder() -> None:
    assert told(outlook(state(work_s=600), (), 50, 250, Bundling(PAPER))) == [
        ("wait", 50, 250, 0, 0, False),
        ("move", 250, 350, 16, 0, True),
        ("run", 350, 750, 16, 1, True),
    ]


def test_a_job_that_runs_moves_to_a_place_holder_that_starts_before_its_end() -> None:
    job = state((8, 5000))
    plan = expected_completion(job, 0, PAPER)[1]
    assert told(plan) == [("run", 0, 2000, 8, 2, False)]
    assert told(outlook(job, plan, 0, 400, Bundling(PAPER))) == [
        ("run", 0, 400, 8, 2, False),  # 200 s of work
        ("move", 400, 500, 16, 0, True),
        ("run", 500, 1300, 16, 1, True),
    ]
    assert outlook(job, plan, 0, 2000, Bundling(PAPER)) == plan  # done before
    assert outlook(job, plan, 0, None, Bundling(PAPER)) == plan
    # So late that moving does not pay: the policy goes on without J0, which the plan then shows.
    assert told(outlook(job, plan, 0, 1900, Bundling(PAPER))) == [
        ("run", 0, 1900, 8, 2, False),
        ("run", 1900, 2000, 8, 2, False),
    ]


def test_a_suspension_lasts_until_the_place_holder_starts() -> None:
    job = state((8, 500))
    plan = expected_completion(job, 0, BundlingParameters(lambda_s=100, suspend=True))[1]
    assert told(plan)[-1] == ("suspended", 500, math.inf, 0, 0, False)
    assert told(outlook(job, plan, 0, 700, Bundling(PAPER))) == [
        ("run", 0, 400, 8, 2, False),
        ("move", 400, 500, 8, 0, False),
        ("suspended", 500, 700, 0, 0, False),
        ("move", 700, 800, 16, 0, True),
        ("run", 800, 1600, 16, 1, True),
    ]


def test_a_move_is_brought_to_its_end_before_the_place_holder_is_taken() -> None:
    job = state((8, 500), (8, 5000))
    plan = expected_completion(job, 0, PAPER)[1]
    assert told(plan)[:2] == [("run", 0, 400, 16, 1, False), ("move", 400, 500, 16, 0, False)]
    after = told(outlook(job, plan, 0, 420, Bundling(PAPER)))
    assert after[:2] == told(plan)[:2]
    assert after[2:] == [("move", 500, 600, 16, 0, True), ("run", 600, 1200, 16, 1, True)]


def test_on_the_place_holder_nothing_else_comes() -> None:
    job = ElasticState("j", 16, 1000.0, 0.0, (HeldSubjob("j.0", 16, 1000.0),), None, True)
    plan = expected_completion(job, 0, PAPER)[1]
    assert outlook(job, plan, 0, 0, Bundling(PAPER)) == plan


def test_a_plan_of_before_is_cut_at_now() -> None:
    plan = (
        PlannedInterval(PlannedKind.RUN, 0, 100, 4, 4),
        PlannedInterval(PlannedKind.SUSPENDED, 100, math.inf, 0, 0),
    )
    assert told(from_now(plan, 60)) == [("run", 60, 100, 4, 4, False), ("suspended", 100, math.inf, 0, 0, False)]
    assert told(from_now(plan, 100)) == [("suspended", 100, math.inf, 0, 0, False)]
    assert told(until(plan, 100)) == [("run", 0, 100, 4, 4, False)]
    assert told(until(plan, 130))[1] == ("suspended", 100, 130, 0, 0, False)


@given(worlds(holds=True))
def test_the_next_event_is_in_the_timeline(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    """What the manager carries out next (a move off subjobs, a suspension) is where the timeline says, or there is
    none. What people are shown, and what is done, is one plan."""
    state, _, parameters = world
    decision = Bundling(parameters).subjob_ends(state, NOW)
    stalled_s = NOW if state.stalled_until_s is None else max(NOW, state.stalled_until_s)
    running = [interval for interval in decision.timeline if interval.start_s >= stalled_s]
    moves = [interval for interval in running if interval.kind is PlannedKind.MOVE]
    if decision.begin_s is None:
        assert all(interval.kind is PlannedKind.RUN for interval in running)
        return
    assert decision.end_s is not None
    if decision.end_s > stalled_s and parameters.lambda_s > 0:
        assert moves[0].start_s == pytest.approx(max(stalled_s, decision.begin_s))
        assert moves[0].end_s == pytest.approx(decision.end_s)
    if decision.kind is DecisionKind.SUSPEND:
        assert running[-1].kind is PlannedKind.SUSPENDED


@given(worlds(holds=True), st.booleans(), st.booleans(), st.none() | st.integers(NOW, NOW + 40_000))
def test_no_job_is_said_to_be_moved_or_suspended_that_cannot_be(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
    movable: bool,
    suspendable: bool,
    placeholder_s: int | None,
) -> None:
    """Of a job that cannot be moved a move was planned, and a suspension of one that would lose its shell."""
    state, _, parameters = world
    state = replace(state, movable=movable, suspendable=suspendable)
    policy = Bundling(parameters)
    plan = outlook(state, policy.subjob_ends(state, NOW).timeline, NOW, placeholder_s, policy)
    kinds = [interval.kind for interval in plan]
    assert all(one.end_s == other.start_s for one, other in itertools.pairwise(plan))
    if not movable:
        assert PlannedKind.MOVE not in kinds and PlannedKind.SUSPENDED not in kinds
        runs = [interval for interval in plan if interval.kind is PlannedKind.RUN and not interval.on_placeholder]
        assert len({interval.processors for interval in runs}) <= 1, "its ranks stay where they are"
    if not suspendable:
        assert PlannedKind.SUSPENDED not in kinds
    if PlannedKind.CUT_OFF in kinds:
        assert kinds[-1] is PlannedKind.CUT_OFF and not (movable and suspendable)
    if movable and suspendable and placeholder_s is None:
        ends_now = (PlannedInterval(PlannedKind.SUSPENDED, NOW, math.inf, 0, 0),)
        assert plan == (policy.subjob_ends(state, NOW).timeline or ends_now)


def test_what_cannot_be_kept_is_cut_off() -> None:
    job = replace(state((8, 500), (8, 5000)), movable=False)
    plan = Bundling(PAPER).subjob_ends(job, 0).timeline
    assert ("move", 400, 500, 16, 0, False) in told(plan), "what the policy would do"
    cut = [("run", 0, 400, 16, 1, False), ("cut_off", 400, math.inf, 0, 0, False)]
    assert told(outlook(job, plan, 0, None, Bundling(PAPER))) == cut
    assert told(outlook(job, plan, 0, 450, Bundling(PAPER))) == cut, "a J0 that starts later comes too late"


def test_on_j0_a_job_runs_to_the_end_of_its_work() -> None:
    """It was said to move off J0 at its end, and to be suspended until J0 starts."""
    job = ElasticState("j", 16, 1000.0, 10.0, (HeldSubjob("j.0", 16, 980.0),), None, True)
    plan = Bundling(PAPER).subjob_ends(job.with_lasting_placeholder(), 0).timeline
    assert told(until(plan, 980)) == [("run", 0, 980, 16, 1, True)]
    wider = replace(job, subjobs=(HeldSubjob("j.1", 8, 500.0), *job.subjobs))
    assert [held.end_s for held in wider.with_lasting_placeholder().subjobs] == [500.0, math.inf]
    assert state((8, 500)).with_lasting_placeholder() == state((8, 500))
