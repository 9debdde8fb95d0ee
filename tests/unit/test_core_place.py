"""What use costs the place of J0 under a fair share: who passes it after how much, and what is not started for that."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.decision import DecisionKind, ReasonCode
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.room.place import Place, Rival, place_of, until_passed
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState
from ejbd.core.view import BatchJobView, BatchState, ClusterView, FairShare, QueueView, Reservations, Share

NOW = 1000.0
OURS, RIVALS = Share("ours", 0.5, 0.0), Share("rivals", 0.5, 0.0)
FAIR = FairShare(100_000.0, by_rank=False, used=10_000.0, shares=(OURS, RIVALS))
J0 = BatchJobView(
    "1", "ejb-a.0", "ada", "batch", BatchState.PENDING, 32, 600.0, planned_start_s=2000.0, account="ours", priority=900
)
RIVAL = replace(J0, id="2", name="x", user="eve", account="rivals", planned_start_s=2600.0, walltime_s=500.0)


def view(*jobs: BatchJobView, fair: FairShare | None = FAIR) -> ClusterView:
    queues = (QueueView("batch", True, None, 1, 32),)
    return ClusterView(NOW, (), jobs, queues, Reservations.NODES, fair_share=fair)


def test_a_rival_of_another_account_that_is_planned_behind_j0_may_take_its_place() -> None:
    assert place_of(view(J0, RIVAL), J0) == Place(2000.0, 2600.0, (Rival("2", "eve", 0.0, 500.0),))
    for other in (
        replace(RIVAL, account="ours"),
        replace(RIVAL, planned_start_s=2000.0),  # it starts beside J0
        replace(RIVAL, planned_start_s=None, processors=0),
        replace(RIVAL, priority=901),  # it is ahead anyhow
        replace(RIVAL, blocked=True),
        replace(RIVAL, queue="long"),
        replace(RIVAL, state=BatchState.RUNNING),
        replace(RIVAL, account="ours"),
    ):
        assert place_of(view(J0, other), J0) is None, other
    assert place_of(view(J0, RIVAL, fair=None), J0) is None
    waits = replace(J0, planned_start_s=None)
    assert place_of(view(waits, RIVAL), waits) is None, "what is not planned cannot be put off"


@pytest.mark.parametrize(
    ("own", "other", "ahead", "by_rank", "left"),
    [
        (0.0, 0.0, 0.0, False, 0.0),
        (0.0, 0.0, 2_661.0, False, 198.5),  # the fall of the benchmark: 97,339 of 100,000
        (0.0, 0.0, 50_000.0, False, 10_000.0),  # half of everything, at half of the shares
        (0.0, 0.0, 100_000.0, False, math.inf),
        (0.0, 0.0, 90_000.0, False, math.inf),  # not by all that there is to use
        (0.0, 0.0, 10.0, True, 0.0),  # the first use loses the first rank
        (1000.0, 3000.0, 10.0, True, 2857.0),
        (3000.0, 1000.0, 10.0, True, math.inf),  # it is behind by rank already, and ahead by its age
        (1000.0, 3000.0, 100_000.0, True, math.inf),
    ],
)
def test_how_much_may_be_used_until_then(own: float, other: float, ahead: float, by_rank: bool, left: float) -> None:
    fair = replace(FAIR, by_rank=by_rank)
    found = until_passed(fair, replace(OURS, used=own), replace(RIVALS, used=other), ahead)
    assert found == pytest.approx(left, rel=0.02)


PARAMETERS = BundlingParameters(omax=8, lambda_s=10.0, delta=1.0)
WAITS = ElasticState("a", 32, 600.0)
SLOTS = (BackfillSlot(4, UNLIMITED),)


def asked(place: Place | None) -> Question:
    return Question(Situation.WAIT, WAITS, SLOTS, NOW, PARAMETERS, place=place)


def test_what_would_cost_the_place_more_than_it_gains_is_not_started() -> None:
    """Eight ranks a processor: done by 5,800, and J0 would be by 2,600. Until J0 starts 125 s of work are done."""
    place = Place(2000.0, 2600.0, (Rival("2", "eve", 3000.0, 500.0),))
    assert asked(None).answer().kind is DecisionKind.START
    found = asked(place).answer()
    assert (found.kind, found.code) == (DecisionKind.NOTHING, ReasonCode.COSTS_PLACE)
    assert "job 2 of eve would go first and cost J0 500 s" in found.reason and found.candidates
    again = Question.from_json(asked(place).to_json())
    assert again == asked(place) and again.answer() == found, "and a replay says the same"


@pytest.mark.parametrize(
    "place",
    [
        Place(2000.0, 2600.0, (Rival("2", "eve", 4000.0, 500.0),)),  # nobody passes by 4 processors for 1,000 s
        Place(2000.0, 2600.0, (Rival("2", "eve", 0.0, 100.0),)),  # which costs less than what is done by then
        Place(9000.0, 9600.0, (Rival("2", "eve", 0.0, 500.0),)),  # it is done before J0 would be
    ],
)
def test_what_costs_nothing_or_less_is_started(place: Place) -> None:
    assert asked(place).answer() == asked(None).answer()
