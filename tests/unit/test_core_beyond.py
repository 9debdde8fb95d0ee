"""Growth beyond the width that a job asked for: only where its rungs and an idle queue let it, and first to be given
back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.policy import Bundling
from ejbd.core.decision import Decision, DecisionKind, ReasonCode
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.rungs import Rungs, Shape, rungs_of
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob

LAMBDA_S = 10.0
ON_J0 = ElasticState("1", 4, 1000.0, 0.0, (HeldSubjob("1.0", 4, 1000.0),), None, True, alone=True)
GROWN = replace(ON_J0, subjobs=(*ON_J0.subjobs, HeldSubjob("1.1", 4, 900.0)), alone=False)


def parameters(rungs: Rungs) -> BundlingParameters:
    return BundlingParameters(lambda_s=LAMBDA_S, rungs=rungs)


TO_EIGHT = parameters(rungs_of(4, most=8))


def asked(
    state: ElasticState, params: BundlingParameters, free: int = 8, situation: Situation = Situation.RUNNING
) -> Decision:
    question = Question(situation, state, (BackfillSlot(free, UNLIMITED),), 0.0, params, "bundling")
    return Question.from_json(question.to_json()).answer()


def test_rungs_reach_beyond_by_the_law_by_what_was_measured_and_by_the_shape() -> None:
    assert rungs_of(4, most=8, alpha=0.5).stretches[0] == pytest.approx(0.5**0.5)
    assert rungs_of(4, most=8, measured={4: 10.0, 8: 16.0}).stretches[0] == pytest.approx(10 / 16)
    assert rungs_of(4, most=8, measured={4: 10.0, 6: 15.0, 8: 14.0}).widths[0] == 6, "eight is no faster than six"
    assert rungs_of(4, most=16, shape=Shape.DIVIDES).widths == (16, 8, 4, 2, 1)
    assert rungs_of(4, most=12, shape=Shape.POWER_OF_TWO).widths == (8, 4, 2, 1)
    assert rungs_of(4, most=12, widths=(2, 6, 12, 20)).widths == (12, 6, 4, 2)
    assert rungs_of(4, most=8).within() == rungs_of(4)
    law = Rungs(1.0, beyond=2.0)
    assert (law.width_on(4, 9), law.stretch_on(4, 8), law.within()) == (8, 0.5, Rungs(1.0))
    assert Rungs.from_json(law.to_json()) == law and Rungs(1.0).to_json() == {"alpha": 1.0}


@pytest.mark.parametrize("params", [TO_EIGHT, parameters(Rungs(1.0, beyond=2.0))], ids=["table", "law"])
def test_a_job_on_j0_grows_beyond_it_while_no_other_waits(params: BundlingParameters) -> None:
    decision = asked(ON_J0, params)
    assert decision.kind is DecisionKind.EXPAND and [r.processors for r in decision.requests] == [4]
    assert decision.expected_completion_s == LAMBDA_S + 1000.0 / 2, "by half of its width more, after a move"
    waits = asked(replace(ON_J0, alone=False), params)
    assert (waits.kind, waits.code) == (DecisionKind.NOTHING, ReasonCode.ON_PLACEHOLDER)
    assert asked(ON_J0, parameters(rungs_of(4))).code is ReasonCode.ON_PLACEHOLDER, "its rungs end at its width"


def test_a_job_on_subjobs_grows_to_its_width_first_and_then_beyond_by_subjobs_of_their_own() -> None:
    narrow = replace(ON_J0, subjobs=(HeldSubjob("1.1", 2, UNLIMITED),), on_placeholder=False)
    assert [r.processors for r in asked(narrow, TO_EIGHT).requests] == [2]
    whole = replace(narrow, subjobs=(*narrow.subjobs, HeldSubjob("1.2", 2, UNLIMITED)))
    assert [r.processors for r in asked(whole, TO_EIGHT).requests] == [4]
    assert asked(replace(whole, alone=False), TO_EIGHT).code is ReasonCode.FULL_WIDTH
    widest = replace(whole, subjobs=(*whole.subjobs, HeldSubjob("1.3", 4, UNLIMITED)))
    assert asked(widest, TO_EIGHT).code is ReasonCode.FULL_WIDTH


def test_what_ends_after_j0_or_too_soon_to_pay_is_not_taken() -> None:
    late = replace(ON_J0, subjobs=(HeldSubjob("1.0", 4, 505.0),))
    assert asked(late, TO_EIGHT).kind is DecisionKind.NOTHING, "done at 510 s, and J0 ends before"
    soon = replace(ON_J0, work_s=985.0)
    assert asked(soon, TO_EIGHT).kind is DecisionKind.NOTHING, "one move of 10 s for 15 s that are left"


def test_once_another_waits_what_is_beyond_is_given_back_as_soon_as_it_has_paid_for_its_moves() -> None:
    given = asked(replace(GROWN, work_s=100.0), TO_EIGHT, situation=Situation.BEYOND)
    assert given.kind is DecisionKind.LEAVE and given.cancel == ("1.1",)
    assert given.expected_completion_s == LAMBDA_S + 900.0
    kept = asked(GROWN, TO_EIGHT, situation=Situation.BEYOND)
    assert kept.kind is DecisionKind.NOTHING, "J0 alone would end before the job does"
    nearly = asked(replace(GROWN, work_s=970.0), TO_EIGHT, situation=Situation.BEYOND)
    assert nearly.kind is DecisionKind.NOTHING, "done within 15 s, and a move takes 10"
    assert asked(replace(ON_J0, alone=False), TO_EIGHT, situation=Situation.BEYOND).kind is DecisionKind.NOTHING


def test_the_subjobs_that_end_first_are_given_back_and_an_anchor_never() -> None:
    held = (HeldSubjob("1.1", 2, 700.0), HeldSubjob("1.2", 4, 2000.0), HeldSubjob("1.3", 2, 800.0))
    many = replace(GROWN, subjobs=held, on_placeholder=False, work_s=100.0)
    given = Bundling(TO_EIGHT).beyond(many, 0.0)
    assert given.cancel == ("1.1", "1.3")
    anchored = replace(many, subjobs=(replace(held[0], anchor=True), *held[1:]))
    assert Bundling(TO_EIGHT).beyond(anchored, 0.0).kind is DecisionKind.NOTHING
