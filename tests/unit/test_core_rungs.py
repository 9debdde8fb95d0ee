"""Widths as a value: a job's rungs, of which Eq. 2 is one table, the law, and what was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.core.bundling.handlers import plan_leaving, plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters, Guard
from ejbd.core.bundling.plan import expected_completion
from ejbd.core.bundling.rungs import last_rung, rung_on, stretch_at, width_of
from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.delta import DeltaByDegree
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.rungs import Rungs, Shape, over_subscribed, rate_on, rungs_of, table_of
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob

LAW = BundlingParameters(rungs=Rungs(1.0), omax=64)


def done(decision: Decision) -> tuple[object, ...]:
    """What a decision comes to, without its words."""
    requests = [(one.processors, one.length_s, one.slot_index) for one in decision.requests]
    spans = [(one.kind, one.start_s, one.end_s, one.processors) for one in decision.timeline]
    return decision.kind, requests, decision.expected_completion_s, decision.cancel, decision.begin_s, spans


slots = st.lists(st.tuples(st.integers(1, 24), st.integers(60, 9000)), min_size=1, max_size=3).map(
    lambda found: tuple(
        BackfillSlot(processors, float(length))
        for processors, length in zip(
            sorted({p for p, _ in found}), sorted({s for _, s in found}, reverse=True), strict=False
        )
    )
)


@settings(max_examples=60, deadline=None)
@given(
    processes=st.integers(1, 24),
    work=st.integers(0, 3000),
    held=st.lists(st.tuples(st.integers(1, 6), st.integers(100, 5000)), max_size=3),
    free=slots,
    delta=st.sampled_from([1.0, 1.5, DeltaByDegree(((2, 1.1), (4, 1.4)))]),
    suspend=st.booleans(),
)
def test_eq_2_is_one_table_and_is_decided_by_as_before(
    processes: int, work: int, held: list[tuple[int, int]], free: tuple[BackfillSlot, ...], delta: float, suspend: bool
) -> None:
    params = BundlingParameters(delta=delta, suspend=suspend, guard=Guard.OFF)
    by_table = replace(params, rungs=over_subscribed(processes, delta, params.omax))
    subjobs: list[HeldSubjob] = []
    for number, (processors, end) in enumerate(held):
        if sum(one.processors for one in subjobs) + processors <= processes:
            subjobs.append(HeldSubjob(f"s{number}", processors, float(end)))
    state = ElasticState("1", processes, 3600.0, float(work), tuple(subjobs))
    if not subjobs:
        assert done(plan_wait(state, free, 0.0, by_table)) == done(plan_wait(state, free, 0.0, params))
    elif state.processors * params.omax >= processes:  # narrower than any width, what it runs on is a fact
        assert done(plan_leaving(state, 0.0, by_table)) == done(plan_leaving(state, 0.0, params))
        assert done(plan_running(state, free, 0.0, by_table)) == done(plan_running(state, free, 0.0, params))


def test_over_subscription_has_a_width_for_each_degree_that_is_worth_one() -> None:
    found = over_subscribed(8, 1.5, 8)
    assert dict(zip(found.widths, found.stretches, strict=True)) == {8: 1.0, 4: 3.0, 3: 4.5, 2: 6.0, 1: 12.0}
    for processors in range(1, 9):
        assert rate_on(8, processors, 1.5, found) == rate_on(8, processors, 1.5, None)


@pytest.mark.parametrize("processes", [1, 7, 64])
def test_by_a_law_every_width_is_a_rung(processes: int) -> None:
    rules = replace(LAW, rungs=Rungs(0.8), pace=1.25).rules
    least = -(-processes // 64)
    assert width_of(processes, last_rung(processes, rules), rules) == least
    for processors in range(least, processes + 1):
        rung = rung_on(processes, processors, rules)
        assert width_of(processes, rung, rules) == processors
        assert stretch_at(processes, rung, rules) == pytest.approx(1.25 * (processes / processors) ** 0.8)
    assert rate_on(processes, 2 * processes, 1.0, Rungs(0.8)) == 1.0, "nothing is gained beyond its width"


def test_a_reshaped_job_takes_the_whole_slot() -> None:
    """O_max 8 of Eq. 2 takes 8 of the 11 processors, the fewest that give degree 2; reshaped, it takes all."""
    state, free = ElasticState("1", 16, 3600.0), [BackfillSlot(11, UNLIMITED)]
    over = plan_wait(state, free, 0.0, BundlingParameters())
    law = plan_wait(state, free, 0.0, replace(LAW, rungs=Rungs(0.9)))
    assert (over.requests[0].processors, over.expected_completion_s) == (8, 7200.0)
    assert law.requests[0].processors == 11
    assert law.expected_completion_s == math.ceil(3600 * (16 / 11) ** 0.9)
    assert law.timeline[-1].degree == 1 and law.timeline[-1].processors == 11
    assert "reshaped" in law.reason and "degree" not in law.reason


def test_a_list_of_widths_is_kept_to_when_starting_growing_and_leaving() -> None:
    params = replace(LAW, rungs=rungs_of(16, alpha=1.0, shape=Shape.POWER_OF_TWO))
    start = plan_wait(ElasticState("1", 16, 3600.0), [BackfillSlot(11, UNLIMITED)], 0.0, params)
    assert start.requests[0].processors == 8
    held = ElasticState("1", 16, 36000.0, 0.0, (HeldSubjob("a", 2, UNLIMITED), HeldSubjob("b", 2, 5000.0)))
    grown = plan_running(held, [BackfillSlot(11, UNLIMITED)], 0.0, params)
    assert grown.kind is DecisionKind.EXPAND and grown.requests[0].processors in (4, 6), "8, or 8 once b is left"
    done_s, timeline = expected_completion(replace(held, requested_s=3000.0), 0.0, params)
    assert [one.processors for one in timeline if one.kind == "run"] == [4, 2] and done_s > 5000.0


def test_no_width_below_the_least_one_is_taken() -> None:
    params = replace(LAW, rungs=rungs_of(16, alpha=1.0, least=4))
    none = plan_wait(ElasticState("1", 16, 3600.0), [BackfillSlot(3, UNLIMITED)], 0.0, params)
    assert none.kind is DecisionKind.NOTHING and "the narrowest width is 4" in none.reason


def test_what_was_measured_stands_in_the_place_of_the_law() -> None:
    measured = {16: 10.0, 4: 4.0}
    found = rungs_of(16, alpha=1.0, measured=measured)
    stretches = dict(zip(found.widths, found.stretches, strict=True))
    assert stretches[4] == pytest.approx(2.5)
    assert stretches[8] == pytest.approx(10 / math.sqrt(40)), "half-way in logarithms"
    assert stretches[2] == pytest.approx(5.0), "by the law from the nearest that was measured"
    assert all(less < more for less, more in pairwise(found.stretches))


def test_widths_with_a_rate_of_1_and_those_that_are_no_faster_than_narrower_ones_are_dropped() -> None:
    assert table_of({16: 1.0, 12: 0.9, 8: 2.0, 6: 1.8, 4: 4.0}).widths == (16, 6, 4)
    assert rungs_of(16, measured={16: 10.0, 8: 11.0, 4: 5.0}, widths=[4, 8]).widths == (16, 4)


def test_shapes() -> None:
    assert [width for width in range(1, 13) if Shape.DIVIDES.has(width, 12)] == [1, 2, 3, 4, 6, 12]
    assert [width for width in range(1, 13) if Shape.POWER_OF_TWO.has(width, 12)] == [1, 2, 4, 8, 12]
    assert rungs_of(12, widths=[3, 5, 20]).widths == (12, 5, 3)
    assert rungs_of(14, shape=Shape.NODES, node=4, most=20).widths == (20, 16, 14, 12, 8, 4)
    assert rungs_of(3, shape=Shape.NODES, node=4).widths == (3,), "its own is one, whatever a node holds"
    assert rungs_of(3, shape=Shape.NODES).widths == (3, 2, 1), "before a node is known"


def test_lambda_is_that_of_the_width_that_is_moved_to() -> None:
    rungs = rungs_of(16, alpha=1.0, widths=[4, 8], moves_s={4: 10.0, 16: 130.0})
    assert rungs.moves_s == (130.0, 50.0, 10.0)
    params = replace(LAW, lambda_s=130.0, rungs=rungs)
    resumed = ElasticState("1", 16, 3600.0, 1800.0)
    assert plan_wait(resumed, [BackfillSlot(4, UNLIMITED)], 0.0, params).expected_completion_s == 7200.0 + 10.0
    assert plan_wait(resumed, [BackfillSlot(16, UNLIMITED)], 0.0, params).expected_completion_s == 1800.0 + 130.0
    runs = replace(resumed, subjobs=(HeldSubjob("a", 4, UNLIMITED),))
    assert plan_running(runs, [BackfillSlot(4, UNLIMITED)], 0.0, params).expected_completion_s == 3600.0 + 50.0


def test_a_question_keeps_its_rungs_and_without_any_it_says_nothing_of_them() -> None:
    state = ElasticState("1", 16, 3600.0)
    for rungs in (Rungs(0.9), rungs_of(16, shape=Shape.DIVIDES, moves_s={4: 10.0})):
        asked = Question(Situation.WAIT, state, (BackfillSlot(4, UNLIMITED),), 0.0, replace(LAW, rungs=rungs))
        assert Question.from_json(asked.to_json()) == asked
    assert "rungs" not in Question(Situation.WAIT, state, (), 0.0, BundlingParameters()).to_json()["parameters"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "a law"),
        ({"alpha": 1.0, "widths": (2,), "stretches": (1.0,)}, "one of the two"),
        ({"widths": (2, 4), "stretches": (1.0, 2.0)}, "fall"),
        ({"widths": (4, 2), "stretches": (1.0, 1.0)}, "rise"),
        ({"widths": (4, 2), "stretches": (1.0,)}, "its stretch"),
    ],
)
def test_what_cannot_be_is_said(data: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Rungs(**data)  # type: ignore[arg-type]


def test_the_guard_lends_to_reshaped_jobs_whatever_delta_is() -> None:
    """Their processor-seconds are no dearer than at full width, so no Delta makes them so."""
    from ejbd.core.bundling.guard import dearness, is_dear

    rules = replace(LAW, rungs=Rungs(0.8), delta=3.0, guard=Guard.ON).rules
    for width in (1, 8, 63, 64):
        rung = rung_on(64, width, rules)
        assert dearness(64, rung, rules) == pytest.approx((64 / width) ** -0.2)
        assert not is_dear(64, rung, math.inf, rules)


def test_a_width_that_cannot_be_had_is_left_out_its_own_too() -> None:
    assert rungs_of(8, barred={4}).widths == (8, 7, 6, 5, 3, 2, 1)
    without = rungs_of(8, shape=Shape.DIVIDES, barred={8})
    assert (without.widths, without.stretches) == ((4, 2, 1), (2.0, 4.0, 8.0))
    # Four were measured to be faster than the eight that were asked for: they are not taken to be beyond those.
    faster = rungs_of(8, shape=Shape.DIVIDES, measured={8: 10.0, 4: 20.0, 2: 5.0}, barred={8})
    assert (faster.widths, faster.stretches[0], faster.above) == ((4, 2, 1), 1.0, 0)
