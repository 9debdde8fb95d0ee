"""Moves weighed by what earlier runs say is left, while what is held has to last for the request."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.handlers import plan_placeholder_start, plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.weighing import AT, BY_MEAN, POINTS, SHARE, points_of, weighed_left
from ejbd.core.decision import DecisionKind
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob

PAPER = BundlingParameters(lambda_s=120.0)
FREE = (BackfillSlot(16, UNLIMITED),)
HOLDS_4 = ElasticState("job", 16, 4000.0, 0.0, (HeldSubjob("J1", 4, 20_000.0),))


def test_the_points_of_a_law() -> None:
    points = points_of(lambda share: 100.0 * share)
    assert points[0] == pytest.approx(2.5) and points[-1] == pytest.approx(97.5) and len(points) == len(AT) == POINTS


def test_what_is_left_goes_by_the_runs_that_got_so_far() -> None:
    points = points_of(lambda share: 100.0 * share)
    assert weighed_left(points, 0.0, math.inf, SHARE) == pytest.approx(7.5), "one of the twenty is over before"
    assert weighed_left(points, 50.0, math.inf, 0.5) == pytest.approx(27.5)
    assert weighed_left(points, 50.0, math.inf, BY_MEAN) == pytest.approx(25.0)
    assert weighed_left(points, 50.0, 10.0, BY_MEAN) == 10.0, "never more than what it may have left"
    assert weighed_left(points, 98.0, 400.0, SHARE) == 400.0, "it has outlived them all"


def test_a_job_that_is_thought_to_be_over_soon_does_not_grow() -> None:
    """Four times slower than at full width: 100 s that are left take 400 s, and 120 + 100 s after a move."""
    assert plan_running(HOLDS_4, FREE, 0.0, PAPER).kind is DecisionKind.EXPAND
    soon = plan_running(replace(HOLDS_4, expected_left_s=100.0), FREE, 0.0, PAPER)
    assert soon.kind is DecisionKind.EXPAND
    sooner = plan_running(replace(HOLDS_4, expected_left_s=35.0), FREE, 0.0, PAPER)
    assert sooner.kind is DecisionKind.NOTHING
    assert "done in 4120 s, but with 35 s left, as earlier runs have it, no earlier" in sooner.reason
    at_once = plan_running(replace(HOLDS_4, expected_left_s=20.0), FREE, 0.0, PAPER)
    assert at_once.kind is DecisionKind.NOTHING
    assert at_once.reason == "with 20 s left, as earlier runs have it, done within a move's 120 s"


def test_what_it_takes_lasts_for_the_request_all_the_same() -> None:
    waiting = ElasticState("job", 16, 4000.0)
    slots = (BackfillSlot(4, UNLIMITED), BackfillSlot(8, 7000.0))
    asked = plan_wait(waiting, slots, 0.0, PAPER)
    assert plan_wait(replace(waiting, expected_left_s=10.0), slots, 0.0, PAPER).requests == asked.requests


def test_j0_is_moved_to_if_that_pays_for_what_is_left() -> None:
    started = replace(HOLDS_4, work_s=500.0)
    assert plan_placeholder_start(started, 0.0, PAPER).kind is DecisionKind.MOVE_TO_PLACEHOLDER
    decision = plan_placeholder_start(replace(started, expected_left_s=30.0), 0.0, PAPER)
    assert decision.kind is DecisionKind.KEEP_SUBJOBS
    assert "(with 30 s left, as earlier runs have it)" in decision.reason
    stuck = replace(started, subjobs=(HeldSubjob("J1", 4, 1000.0),), expected_left_s=30.0)
    assert plan_placeholder_start(stuck, 0.0, PAPER).kind is not DecisionKind.KEEP_SUBJOBS, "it may run for longer"


@given(
    st.floats(0.0, 5000.0),
    st.floats(0.0, 5000.0),
    st.lists(st.tuples(st.integers(1, 32), st.floats(60.0, 30_000.0)), max_size=3, unique_by=lambda slot: slot[0]),
)
def test_weighed_by_more_than_the_request_is_weighed_by_the_request(
    work_s: float, more_s: float, room: list[tuple[int, float]]
) -> None:
    state = replace(HOLDS_4, work_s=work_s)
    told = replace(state, expected_left_s=state.work_left_s + more_s)
    slots = tuple(BackfillSlot(*slot) for slot in sorted(room, key=lambda slot: slot[1], reverse=True))
    assert plan_running(told, slots, 0.0, PAPER) == plan_running(state, slots, 0.0, PAPER)
    assert plan_placeholder_start(told, 0.0, PAPER) == plan_placeholder_start(state, 0.0, PAPER)


@pytest.mark.parametrize("left_s", [None, 35.0, math.inf])
def test_a_question_is_stored_with_it(left_s: float | None) -> None:
    state = replace(HOLDS_4, expected_left_s=left_s)
    question = Question(Situation.RUNNING, state, FREE, 0.0, PAPER)
    stored = json.loads(json.dumps(question.to_json(), allow_nan=False))
    assert ("expected_left_s" in stored["state"]) == (left_s is not None)
    assert Question.from_json(stored).answer() == question.answer()
