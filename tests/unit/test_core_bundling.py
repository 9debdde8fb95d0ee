"""The policy's cases one by one, worked out by hand, and the paper's Figure 2 through the policies."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest

from ejbd.core.bundling.handlers import plan_completion, plan_placeholder_start, plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import expected_completion, next_shrink
from ejbd.core.decision import Candidate, Decision, DecisionKind, SubjobRequest
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.timeline import PlannedKind, PlannedTimeline
from tests.fakes.eq3 import completion, progress, run_interval

PAPER = BundlingParameters(omax=8, lambda_s=120, delta=1)
FIGURE_2 = BundlingParameters(omax=8, lambda_s=20, delta=1)


def slots(*pairs: tuple[int, float]) -> tuple[BackfillSlot, ...]:
    return tuple(BackfillSlot(processors, duration) for processors, duration in pairs)


def shapes(decision: Decision) -> list[tuple[int, float, int]]:
    return [(request.processors, request.length_s, request.slot_index) for request in decision.requests]


def named(decision: Decision, name: str) -> Candidate:
    return next(candidate for candidate in decision.candidates if candidate.name == name)


def waiting(processes: int = 16, requested: float = 1000, work: float = 0) -> ElasticState:
    return ElasticState("job", processes, requested, work)


def running(*subjobs: HeldSubjob, processes: int = 16, requested: float = 4000, work: float = 0) -> ElasticState:
    return ElasticState("job", processes, requested, work, subjobs)


# Figure 2


def test_figure_2_as_a_plan() -> None:
    subjobs = (HeldSubjob("J1", 1, 1460), HeldSubjob("J2", 1, 1460), HeldSubjob("J3", 2, 1260))
    state = ElasticState("A", 4, 800, 300, subjobs, stalled_until_s=840)
    done, timeline = expected_completion(state, 820, FIGURE_2)
    assert done == 1460
    assert [(i.kind, i.start_s, i.length_s, i.processors) for i in timeline] == [
        (PlannedKind.MOVE, 820, 20, 4),
        (PlannedKind.RUN, 840, 400, 4),
        (PlannedKind.MOVE, 1240, 20, 4),
        (PlannedKind.RUN, 1260, 200, 2),
    ]


def test_figure_2_through_the_policies() -> None:
    """One processor is free at 0, another at 400, two more from 820 to 1260: the paper's seven intervals follow."""
    first = plan_wait(waiting(4, 800), slots((1, UNLIMITED)), 0, FIGURE_2)
    assert (first.kind, shapes(first), first.expected_completion_s) == (DecisionKind.START, [(1, 3200, 0)], 3200)
    one = HeldSubjob("J1", 1, 3200)

    second = plan_running(running(one, processes=4, requested=800, work=100), slots((1, UNLIMITED)), 400, FIGURE_2)
    assert (second.kind, shapes(second), second.expected_completion_s) == (DecisionKind.EXPAND, [(1, 1420, 0)], 1820)
    two = HeldSubjob("J2", 1, 400 + second.requests[0].length_s)
    state = ElasticState("A", 4, 800, 100, (one, two), stalled_until_s=420)
    done, to_820 = expected_completion(state, 400, FIGURE_2)
    assert done == second.expected_completion_s

    third = plan_running(running(one, two, processes=4, requested=800, work=300), slots((2, 440)), 820, FIGURE_2)
    assert (third.kind, shapes(third), third.expected_completion_s) == (DecisionKind.EXPAND, [(2, 440, 0)], 1460)
    three = HeldSubjob("J3", 2, 820 + third.requests[0].length_s)
    state = ElasticState("A", 4, 800, 300, (one, two, three), stalled_until_s=840)
    done, to_end = expected_completion(state, 820, FIGURE_2)
    assert done == 1460

    shrink = next_shrink(state, 820, FIGURE_2)
    assert shrink is not None
    assert (shrink.begin_s, shrink.end_s, shrink.leaves, shrink.stays) == (1240, 1260, ("J3",), ("J2", "J1"))

    cut_1 = run_interval(0, 400, 1)
    cut_3 = run_interval(420, 820, 2)
    life = (cut_1, to_820[0], cut_3, *to_end)
    assert len(life) == 7
    assert [interval.kind for interval in life].count(PlannedKind.MOVE) == 3
    assert [(a.end_s, b.start_s) for a, b in pairwise(life) if a.end_s != b.start_s] == []
    assert progress(life, 4, 800, 1) == pytest.approx(1)
    assert completion(life, 4, 800, 1) == pytest.approx(1460)
    assert plan_completion(state, 1460, "completed").cancel == ("J1", "J2", "J3")


# WAIT


def test_case_1_asks_for_the_fewest_processors_of_the_degree_not_for_the_degree() -> None:
    """The paper prints P_1 = ceil(P/S.Pmax), which is the degree: 7 free give degree 3, and 6 processors reach it."""
    decision = plan_wait(waiting(16, 1000), slots((7, UNLIMITED)), 50, PAPER)
    assert decision.kind is DecisionKind.START
    assert shapes(decision) == [(6, 3000, 0)]
    assert decision.expected_completion_s == 3050
    assert "case 1" in decision.reason
    assert "6 processors (degree 3) take 3000 s" in decision.reason


def test_too_few_processors_for_omax_start_nothing() -> None:
    decision = plan_wait(waiting(17), slots((2, UNLIMITED)), 0, PAPER)
    assert decision.kind is DecisionKind.NOTHING
    assert decision.reason == "2 processors free, and O_max 8 needs 3 for 17 processes"
    assert decision.expected_completion_s is None
    assert plan_wait(waiting(17), (), 0, PAPER).reason == "no processor can be used now"


def test_case_2_needs_its_length_to_be_strictly_below_the_slots() -> None:
    assert shapes(plan_wait(waiting(16, 1000), slots((8, 2001)), 0, PAPER)) == [(8, 2000, 0)]
    late = plan_wait(waiting(16, 1000), slots((8, 2000)), 0, PAPER)
    assert late.kind is DecisionKind.NOTHING
    assert not named(late, "case 2").feasible
    assert "8 processors (degree 2) take 2000 s and may be used for 2000 s" in late.reason


def test_case_2_wins_over_a_slower_case_1() -> None:
    decision = plan_wait(waiting(16, 1000), slots((4, UNLIMITED), (16, 1500)), 0, PAPER)
    assert shapes(decision) == [(16, 1000, 1)]
    assert decision.reason.startswith("start by case 2: 16 processors (degree 1) take 1000 s; not case 1: 4 processors")


def test_case_3_runs_on_both_and_finishes_on_the_longer() -> None:
    """L1 = 1000 - 120 at degree 2 does 440 s of work, the other 560 take 2240 s at degree 4: 880 + 120 + 2240."""
    decision = plan_wait(waiting(16, 1000), slots((4, UNLIMITED), (8, 1000)), 0, PAPER)
    assert decision.kind is DecisionKind.START
    assert shapes(decision) == [(4, 3240, 0), (4, 1000, 1)]
    assert decision.expected_completion_s == 3240
    assert named(decision, "case 1").completion_s == 4000
    assert not named(decision, "case 2").feasible


def test_case_3_needs_a_lower_degree_on_both_together_not_a_higher_one() -> None:
    """The paper's third condition is printed the other way round; 5 free processors are no better than 4 for 16."""
    decision = plan_wait(waiting(16, 1000), slots((4, UNLIMITED), (5, 1000)), 0, PAPER)
    assert shapes(decision) == [(4, 4000, 0)]
    assert [candidate.name for candidate in decision.candidates] == ["case 1"]


def test_case_3_is_not_for_a_slot_that_ends_before_the_move_is_paid() -> None:
    decision = plan_wait(waiting(16, 1000), slots((4, UNLIMITED), (8, 120)), 0, PAPER)
    assert shapes(decision) == [(4, 4000, 0)]
    assert not named(decision, "case 3").feasible


def test_what_cannot_be_moved_is_never_planned_off_a_subjob() -> None:
    """Neither case 3, which leaves the wider slot, nor a suspension."""
    seen = slots((4, UNLIMITED), (16, 600))
    moved = plan_wait(waiting(), seen, 0, PAPER)
    assert [c.name for c in moved.candidates if c.feasible] == ["case 1", "case 3"] and len(moved.requests) == 2
    stays = plan_wait(replace(waiting(), movable=False), seen, 0, PAPER)
    assert stays.kind is DecisionKind.START and stays.requests == (SubjobRequest(4, 4000, 0),)
    assert [c.name for c in stays.candidates] == ["case 1", "case 2"]
    short = plan_wait(replace(waiting(), movable=False), seen[1:], 0, replace(PAPER, suspend=True))
    assert short.kind is DecisionKind.NOTHING


def test_a_tie_goes_to_the_lowest_case() -> None:
    """With a slot that lasts, cases 2 and 3 complete together: J1 and J2 would be done within L1."""
    decision = plan_wait(waiting(16, 1000), slots((4, UNLIMITED), (8, 5000)), 0, PAPER)
    assert named(decision, "case 2").completion_s == named(decision, "case 3").completion_s == 2000
    assert shapes(decision) == [(8, 2000, 1)]


def test_case_3_weighs_every_step_of_a_longer_staircase() -> None:
    """Any longer slot may be the one to finish on: 690 s at degree 2, then 310 s at degree 4 within 5000 s."""
    decision = plan_wait(waiting(16, 1000), slots((2, UNLIMITED), (4, 5000), (8, 1500)), 0, PAPER)
    assert [(c.name, c.completion_s) for c in decision.candidates] == [
        ("case 1", 8000),
        ("case 2", 4000),
        ("case 2", None),
        ("case 3", 4000),
        ("case 3", 1500 + 8 * 310),
        ("case 3", 1500 + 4 * 310),
    ]
    assert shapes(decision) == [(4, 2740, 1), (4, 1500, 2)]


def test_work_is_kept_and_restarting_costs_a_move() -> None:
    decision = plan_wait(waiting(16, 1000, work=400), slots((4, UNLIMITED), (8, 1000)), 0, PAPER)
    # case 3: 1000 - 120 - 120 s at degree 2 do 380 s, the other 220 take 880 s at degree 4
    assert named(decision, "case 1").completion_s == 120 + 4 * 600
    assert decision.expected_completion_s == 1000 + 880
    state = ElasticState(
        "job", 16, 1000, 400, (HeldSubjob("J1", 4, 1880), HeldSubjob("J2", 4, 1000)), stalled_until_s=120
    )
    assert expected_completion(state, 0, PAPER)[0] == decision.expected_completion_s


def test_delta_stretches_oversubscription_only() -> None:
    slow = BundlingParameters(delta=1.5)
    assert shapes(plan_wait(waiting(16, 1000), slots((8, UNLIMITED)), 0, slow)) == [(8, 3000, 0)]
    assert shapes(plan_wait(waiting(16, 1000), slots((16, UNLIMITED)), 0, slow)) == [(16, 1000, 0)]


def test_a_walltime_limit_ends_a_type_i_slot_but_may_be_used_to_the_last_second() -> None:
    day = BundlingParameters(max_walltime_s=2000)
    assert shapes(plan_wait(waiting(16, 1000), slots((8, 2000)), 0, day)) == [(8, 2000, 0)]
    assert plan_wait(waiting(16, 1001), slots((8, 2000)), 0, day).kind is DecisionKind.NOTHING


def test_whole_nodes_and_whole_minutes() -> None:
    site = BundlingParameters(processor_quantum=4, walltime_quantum_s=60)
    decision = plan_wait(waiting(18, 1000), slots((12, UNLIMITED)), 0, site)
    assert shapes(decision) == [(12, 2040, 0)]  # 9 processors would do for degree 2
    assert decision.expected_completion_s == 2000


# RUNNING


def test_running_grows_by_the_fewest_processors_that_lower_the_degree() -> None:
    state = running(HeldSubjob("J1", 4, 16000))
    decision = plan_running(state, slots((7, UNLIMITED)), 0, PAPER)
    assert decision.kind is DecisionKind.EXPAND
    assert shapes(decision) == [(4, 8120, 0)]  # 8 of 11 processors reach degree 2
    assert decision.reason.startswith("grow by case 1: 4 processors more, done in 8120 s; as it is, done in 16000 s")


def test_running_case_2_stalls_twice_and_still_pays() -> None:
    state = running(HeldSubjob("J1", 4, 16000))
    decision = plan_running(state, slots((12, 2000)), 0, PAPER)
    # 120 stalled, 1760 at full speed, 120 stalled, 2240 left at degree 4
    assert shapes(decision) == [(12, 2000, 0)]
    assert decision.expected_completion_s == 2000 + 4 * 2240
    assert named(decision, "case 2").feasible


def test_running_case_3_takes_from_both_slots() -> None:
    state = running(HeldSubjob("J1", 4, 16000))
    decision = plan_running(state, slots((4, UNLIMITED), (12, 2000)), 0, PAPER)
    assert decision.expected_completion_s == 2000 + 2 * 2240
    assert shapes(decision) == [(4, 6480, 0), (8, 2000, 1)]
    assert {c.name for c in decision.candidates} == {"case 1", "case 2", "case 3"}


def test_running_considers_the_levels_after_planned_shrinks() -> None:
    """One processor more gains nothing beside the 8 of J2, but helps once J2 has ended and 7 are left."""
    state = running(HeldSubjob("J1", 7, 16000), HeldSubjob("J2", 1, 1000))
    decision = plan_running(state, slots((1, UNLIMITED)), 0, PAPER)
    assert shapes(decision) == [(1, 8240, 0)]
    assert decision.expected_completion_s == 120 + 760 + 120 + 2 * (4000 - 380)


SUSPEND = replace(PAPER, suspend=True)


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        ((4, 1000), (4, 1000, 0)),  # 760 s at degree 2 make 380 s of work instead of 220
        ((4, 2000), (4, 2000, 0)),  # and 220 more on the new subjob alone
        ((4, 250), None),  # 10 s at degree 2 are not worth two moves
        ((2, 1000), None),  # 760 s at degree 3 instead of 880 at 4: 33 s of work more, not worth a move
        ((1, 1000), None),  # 5 processors have degree 4 as 4 have
    ],
)
def test_a_run_that_will_be_suspended_grows_where_it_makes_more_work(
    offered: tuple[int, float], taken: tuple[int, float, int] | None
) -> None:
    state = running(HeldSubjob("J1", 4, 1000))
    decision = plan_running(state, slots(offered), 0, SUSPEND)
    if taken is None:
        assert decision.kind is DecisionKind.NOTHING
        return
    assert decision.kind is DecisionKind.EXPAND and shapes(decision) == [taken]
    assert decision.expected_completion_s is None
    assert "more work until the job is suspended; as it is, which cannot carry it to its end" in decision.reason
    for other in (PAPER, replace(SUSPEND, grow_to_suspend=False)):
        assert plan_running(state, slots(offered), 0, other).kind is DecisionKind.NOTHING


def test_what_completes_goes_before_what_makes_more_work() -> None:
    state = running(HeldSubjob("J1", 4, 1000))
    decision = plan_running(state, slots((2, UNLIMITED), (12, 1000)), 0, SUSPEND)
    assert decision.expected_completion_s is not None
    assert shapes(decision)[0][2] == 0


def test_a_slot_without_an_end_is_held_no_longer_than_it_is_of_use() -> None:
    """One processor for good is too few for O_max; beside the others it lowers the degree until they end."""
    state = running(HeldSubjob("J1", 3, 2000))
    decision = plan_running(state, slots((1, UNLIMITED)), 0, SUSPEND)
    assert shapes(decision) == [(1, 2000, 0)]


@pytest.mark.parametrize("free", [1, 2])
def test_running_stays_where_the_degree_would_not_fall(free: int) -> None:
    decision = plan_running(running(HeldSubjob("J1", 8, 16000)), slots((free, UNLIMITED)), 0, PAPER)
    assert decision.kind is DecisionKind.NOTHING
    assert decision.expected_completion_s == 8000
    assert decision.requests == ()


def test_running_moves_only_for_a_strictly_earlier_completion() -> None:
    near = running(HeldSubjob("J1", 8, 16000), work=4000 - 120)
    tie = plan_running(near, slots((8, UNLIMITED)), 0, PAPER)
    assert tie.kind is DecisionKind.NOTHING
    assert named(tie, "case 1").completion_s == tie.expected_completion_s == 240
    assert "no earlier" in tie.reason
    sooner = plan_running(running(HeldSubjob("J1", 8, 16000), work=4000 - 121), slots((8, UNLIMITED)), 0, PAPER)
    assert (sooner.kind, sooner.expected_completion_s) == (DecisionKind.EXPAND, 241)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (waiting(), "holds no subjob"),
        (ElasticState("j", 16, 4000, 0, (HeldSubjob("J0", 16, 4000),), on_placeholder=True), "place holder"),
        (ElasticState("j", 16, 4000, 0, (HeldSubjob("J1", 4, 20000),), stalled_until_s=60), "move is under way"),
        (running(HeldSubjob("J1", 16, 4000)), "every one of the 16 processes"),
        (running(HeldSubjob("J1", 8, 4000), work=3950), "done in 100 s, within a move's 120 s"),
    ],
)
def test_running_says_why_it_does_not_even_look(state: ElasticState, why: str) -> None:
    decision = plan_running(state, slots((8, UNLIMITED)), 0, PAPER)
    assert decision.kind is DecisionKind.NOTHING
    assert why in decision.reason
    assert decision.candidates == ()


def test_running_without_a_slot_says_so() -> None:
    decision = plan_running(running(HeldSubjob("J1", 8, 9000)), (), 0, PAPER)
    assert decision.reason == "no processor can be used now"


# The walk of a plan


def test_subjobs_that_end_within_lambda_of_each_other_are_left_in_one_move() -> None:
    state = running(HeldSubjob("a", 4, 1000), HeldSubjob("b", 4, 1100), HeldSubjob("c", 8, 99999))
    done, timeline = expected_completion(state, 0, PAPER)
    assert [i.kind for i in timeline].count(PlannedKind.MOVE) == 1
    assert done == 1000 + 2 * (4000 - 880)
    shrink = next_shrink(state, 0, PAPER)
    assert shrink is not None
    assert (shrink.begin_s, shrink.leaves, shrink.stays) == (880, ("a", "b"), ("c",))


def test_a_subjob_that_carries_the_application_to_its_end_is_not_left() -> None:
    subjobs = (HeldSubjob("a", 8, 1000), HeldSubjob("b", 8, 1100))
    state = ElasticState("job", 16, 4000, 4000 - 40, subjobs, stalled_until_s=1000)
    done, timeline = expected_completion(state, 900, PAPER)
    assert done == 1080
    assert timeline[-1].processors == 8
    shrink = next_shrink(state, 900, PAPER)
    assert shrink is not None
    assert (shrink.leaves, shrink.stays) == (("a",), ("b",))
    later = ElasticState("job", 16, 4000, 4000 - 60, subjobs, stalled_until_s=1000)
    assert math.isinf(expected_completion(later, 900, PAPER)[0])


def test_nobody_is_left_when_all_outlast_the_application() -> None:
    assert next_shrink(running(HeldSubjob("a", 8, 8000)), 0, PAPER) is None
    assert next_shrink(waiting(), 0, PAPER) is None


@pytest.mark.parametrize(
    ("subjobs", "why"),
    [
        ((HeldSubjob("a", 8, 3000),), "all subjobs (a) end"),
        ((HeldSubjob("a", 8, 3000), HeldSubjob("b", 1, 99999)), "too few for 16 at O_max 8"),
        ((HeldSubjob("a", 8, 3000, anchor=True), HeldSubjob("b", 8, 99999)), "a holds the user's shell"),
    ],
)
def test_where_nobody_could_stay_it_is_said(subjobs: tuple[HeldSubjob, ...], why: str) -> None:
    state = running(*subjobs)
    shrink = next_shrink(state, 0, PAPER)
    assert shrink is not None
    assert shrink.stays == ()
    assert shrink.leaves == tuple(subjob.id for subjob in subjobs)
    assert (shrink.begin_s, shrink.end_s) == (2880, 3000)
    assert why in shrink.reason
    assert math.isinf(expected_completion(state, 0, PAPER)[0])


def test_an_anchor_that_outlasts_the_application_stays_while_others_go() -> None:
    state = running(HeldSubjob("a", 8, 99999, anchor=True), HeldSubjob("b", 8, 1000))
    shrink = next_shrink(state, 0, PAPER)
    assert shrink is not None
    assert (shrink.leaves, shrink.stays) == (("b",), ("a",))


def test_growing_rescues_a_job_that_could_not_complete_on_what_it_holds() -> None:
    state = running(HeldSubjob("a", 8, 3000))
    decision = plan_running(state, slots((8, UNLIMITED)), 0, PAPER)
    assert decision.kind is DecisionKind.EXPAND
    assert "which cannot carry it to its end" in decision.reason


# J0 and completion


def at_placeholder(work: float, processors: int = 8) -> Decision:
    return plan_placeholder_start(running(HeldSubjob("J1", processors, 99999), work=work), 0, PAPER)


def test_the_place_holder_takes_over_where_moving_completes_first() -> None:
    decision = at_placeholder(work=1000)
    assert (decision.kind, decision.expected_completion_s) == (DecisionKind.MOVE_TO_PLACEHOLDER, 3120)
    assert decision.cancel == ("J1",)
    assert [c.completion_s for c in decision.candidates] == [6000, 3120, 4000]


def test_the_place_holder_is_given_up_where_the_job_is_nearly_done() -> None:
    decision = at_placeholder(work=3950)
    assert (decision.kind, decision.expected_completion_s) == (DecisionKind.KEEP_SUBJOBS, 100)
    assert decision.cancel == ()


def test_starting_over_wins_where_less_is_done_than_a_move_costs() -> None:
    decision = at_placeholder(work=100)
    assert (decision.kind, decision.expected_completion_s) == (DecisionKind.START_ON_PLACEHOLDER, 4000)
    assert decision.cancel == ("J1",)


def test_ties_go_to_going_on_and_then_to_moving() -> None:
    assert at_placeholder(work=3880).kind is DecisionKind.KEEP_SUBJOBS  # 240 s either way
    assert at_placeholder(work=120).kind is DecisionKind.MOVE_TO_PLACEHOLDER  # 4000 s either way


def test_the_place_holder_runs_a_job_that_never_started_elsewhere() -> None:
    decision = plan_placeholder_start(waiting(16, 1000), 5, PAPER)
    assert (decision.kind, decision.expected_completion_s) == (DecisionKind.START_ON_PLACEHOLDER, 1005)


def test_the_place_holder_resumes_from_a_checkpoint_where_that_pays() -> None:
    assert plan_placeholder_start(waiting(16, 1000, 500), 0, PAPER).expected_completion_s == 620
    assert plan_placeholder_start(waiting(16, 1000, 500), 0, PAPER).kind is DecisionKind.MOVE_TO_PLACEHOLDER
    assert plan_placeholder_start(waiting(16, 1000, 50), 0, PAPER).kind is DecisionKind.START_ON_PLACEHOLDER


def test_an_anchor_is_not_released_to_the_place_holder() -> None:
    state = running(HeldSubjob("J1", 4, 99999, anchor=True), HeldSubjob("J2", 4, 99999), work=1000)
    assert plan_placeholder_start(state, 0, PAPER).cancel == ("J2",)


def test_an_end_gives_up_every_subjob_anchors_last() -> None:
    state = running(HeldSubjob("J1", 4, 99, anchor=True), HeldSubjob("J2", 4, 99))
    decision = plan_completion(state, 10, "completed")
    assert (decision.kind, decision.cancel) == (DecisionKind.COMPLETE, ("J2", "J1"))
    assert plan_completion(waiting(), 10, "failed").cancel == ()


# What an answer plans


def told(timeline: PlannedTimeline) -> list[tuple[str, float, float, int, int, bool]]:
    return [(i.kind.value, i.start_s, i.end_s, i.processors, i.degree, i.on_placeholder) for i in timeline]


def test_a_start_plans_both_subjobs_and_the_move_between() -> None:
    """300 s on 8 of which the last 20 s are the move, then what is left on 4: 1600 - 560 of work at degree 2 and 4."""
    decision = plan_wait(waiting(16, 1000), slots((4, UNLIMITED), (8, 300)), 50, FIGURE_2)
    assert [request.processors for request in decision.requests] == [4, 4]
    assert told(decision.timeline) == [
        ("run", 50, 330, 8, 2, False),
        ("move", 330, 350, 8, 0, False),
        ("run", 350, 350 + 4 * (1000 - 140), 4, 4, False),
    ]


def test_a_resumed_start_plans_its_restart_and_a_short_slot_its_suspension() -> None:
    again = plan_wait(waiting(16, 1000, 400), slots((8, UNLIMITED)), 0, FIGURE_2)
    assert told(again.timeline) == [("move", 0, 20, 8, 0, False), ("run", 20, 1220, 8, 2, False)]
    short = plan_wait(waiting(16, 1000), slots((8, 300)), 0, replace(FIGURE_2, suspend=True))
    assert told(short.timeline) == [
        ("run", 0, 280, 8, 2, False),
        ("move", 280, 300, 8, 0, False),
        ("suspended", 300, UNLIMITED, 0, 0, False),
    ]
    assert short.to_json()["timeline"][-1]["end_s"] is None


def test_growing_plans_a_move_now_and_staying_what_is_held() -> None:
    held = running(HeldSubjob("J1", 8, 9000))
    grows = plan_running(held, slots((8, UNLIMITED)), 0, PAPER)
    assert told(grows.timeline) == [("move", 0, 120, 16, 0, False), ("run", 120, 4120, 16, 1, False)]
    assert told(plan_running(held, (), 0, PAPER).timeline) == [("run", 0, 8000, 8, 2, False)]


def test_what_runs_on_j0_is_planned_as_that() -> None:
    moved = at_placeholder(1000)
    assert moved.kind is DecisionKind.MOVE_TO_PLACEHOLDER
    assert [(i.kind.value, i.processors, i.on_placeholder) for i in moved.timeline] == [
        ("move", 16, True),
        ("run", 16, True),
    ]
    assert moved.timeline[-1].end_s == moved.expected_completion_s
    over = plan_placeholder_start(waiting(16, 1000), 5, PAPER)
    assert told(over.timeline) == [("run", 5, 1005, 16, 1, True)]


def test_a_decision_written_before_there_were_timelines_is_read() -> None:
    decision = plan_running(running(HeldSubjob("a", 8, 9000)), (), 0, PAPER)
    old = {key: value for key, value in decision.to_json().items() if key != "timeline"}
    assert Decision.from_json(old) == replace(decision, timeline=())


# Decisions as values


@pytest.mark.parametrize(
    "decision",
    [
        plan_wait(waiting(16, 1000), slots((4, UNLIMITED), (8, 1000)), 0, PAPER),
        plan_wait(waiting(17), slots((2, UNLIMITED)), 0, PAPER),
        plan_running(running(HeldSubjob("a", 8, 3000)), slots((8, UNLIMITED)), 0, PAPER),
        plan_running(running(HeldSubjob("a", 8, 3000)), (), 0, PAPER),
        at_placeholder(1000),
        plan_completion(running(HeldSubjob("J1", 4, 99)), 10, "completed"),
        Decision(DecisionKind.START, "j", 0.5, "r", (SubjobRequest(1, UNLIMITED, 0),)),
    ],
    ids=lambda decision: decision.kind.value,
)
def test_a_decision_survives_json(decision: Decision) -> None:
    text = json.dumps(decision.to_json(), allow_nan=False)
    assert Decision.from_json(json.loads(text)) == decision
