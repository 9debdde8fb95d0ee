"""Jobs whose processes stay on one node: the same policy with a limit, in decisions, in plans and simulated."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.handlers import plan_leaving, plan_placeholder_start, plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import expected_completion
from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.progress import degree
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.timeline import PlannedKind
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.workload import workload_of

PAPER = BundlingParameters(lambda_s=20)


def slots(*shapes: tuple[int, float]) -> tuple[BackfillSlot, ...]:
    return tuple(BackfillSlot(*shape) for shape in shapes)


def waiting(limit: int = 4, processes: int = 16, requested: float = 1000, work: float = 0) -> ElasticState:
    return ElasticState("job", processes, requested, work, node_limit=limit)


def running(*held: HeldSubjob, limit: int = 8, work: float = 0, stalled: float | None = None) -> ElasticState:
    return ElasticState("job", 16, 1000, work, held, stalled, node_limit=limit)


def asked(decision: Decision) -> list[tuple[int, float]]:
    return [(request.processors, request.length_s) for request in decision.requests]


# What a job starts on


def test_a_start_takes_what_one_node_has_and_one_subjob() -> None:
    decision = plan_wait(waiting(), slots((12, UNLIMITED), (16, 2000)), 0, PAPER)
    assert (decision.kind, asked(decision)) == (DecisionKind.START, [(4, 4000)])
    assert "4 processors on one node (degree 4)" in decision.reason
    assert {candidate.name for candidate in decision.candidates} == {"case 1"}, "two subjobs are two nodes"
    assert [interval.degree for interval in decision.timeline] == [4]


def test_no_node_wide_enough_is_said_so() -> None:
    decision = plan_wait(waiting(limit=1), slots((12, UNLIMITED)), 0, PAPER)
    assert decision.kind is DecisionKind.NOTHING
    assert "have to stay on one node: 1 can be had on one, and O_max 8 needs 2" in decision.reason
    assert plan_wait(waiting(limit=0), slots((12, UNLIMITED)), 0, PAPER).kind is DecisionKind.NOTHING


def test_a_slot_that_is_too_short_is_used_until_it_ends() -> None:
    """`suspend` holds on one node, too."""
    state, short = waiting(limit=8), slots((16, 500))
    assert plan_wait(state, short, 0, PAPER).kind is DecisionKind.NOTHING
    decision = plan_wait(state, short, 0, replace(PAPER, suspend=True))
    assert (decision.kind, asked(decision)) == (DecisionKind.START, [(8, 500)])
    kinds = [interval.kind for interval in decision.timeline]
    assert kinds == [PlannedKind.RUN, PlannedKind.MOVE, PlannedKind.SUSPENDED]
    assert plan_wait(replace(state, suspendable=False), short, 0, replace(PAPER, suspend=True)).requests == ()


def test_whole_slots_take_a_whole_node() -> None:
    state, wide = waiting(limit=7), slots((16, UNLIMITED))
    assert asked(plan_wait(state, wide, 0, PAPER)) == [(6, 3000)]
    assert asked(plan_wait(state, wide, 0, replace(PAPER, whole_slots=True))) == [(7, 3000)]
    held = running(HeldSubjob("a", 2, 99999), limit=7)
    assert asked(plan_running(held, wide, 0, PAPER)) == [(6, 3020)]
    assert asked(plan_running(held, wide, 0, replace(PAPER, whole_slots=True))) == [(7, 3020)]


# How it grows


def test_a_job_grows_by_leaving_its_subjob_for_a_wider_one() -> None:
    decision = plan_running(running(HeldSubjob("a", 4, 99999)), slots((16, UNLIMITED)), 100, PAPER)
    assert (decision.kind, asked(decision)) == (DecisionKind.EXPAND, [(8, 2020)])
    assert decision.expected_completion_s == 100 + 20 + 2 * 1000
    assert [(i.kind.value, i.processors) for i in decision.timeline] == [("move", 8), ("run", 8)]
    assert "all processes to 8 processors on one node (degree 2)" in decision.reason


def test_no_lower_degree_is_no_reason_to_move() -> None:
    decision = plan_running(running(HeldSubjob("a", 8, 99999)), slots((16, UNLIMITED)), 0, PAPER)
    assert decision.kind is DecisionKind.NOTHING and "8 can be had at most: no lower degree" in decision.reason


def test_a_shell_that_ends_before_forbids_the_move() -> None:
    held = HeldSubjob("a", 4, 1500, anchor=True)
    assert plan_running(running(held), slots((16, UNLIMITED)), 0, PAPER).kind is DecisionKind.NOTHING
    lasts = replace(held, end_s=99999)
    assert plan_running(running(lasts), slots((16, UNLIMITED)), 0, PAPER).kind is DecisionKind.EXPAND


def test_a_job_that_is_being_moved_looks_on_only_where_it_acts_in_moves() -> None:
    state = running(HeldSubjob("a", 4, 99999), stalled=50)
    assert plan_running(state, slots((16, UNLIMITED)), 0, PAPER).reason == "a move is under way"
    acts = plan_running(state, slots((16, UNLIMITED)), 0, replace(PAPER, act_in_move=True))
    assert acts.kind is DecisionKind.EXPAND


def test_one_that_is_nearly_done_stays() -> None:
    state = running(HeldSubjob("a", 4, 99999), work=900)
    assert plan_running(state, slots((16, UNLIMITED)), 0, PAPER).kind is DecisionKind.EXPAND
    stays = plan_running(state, slots((16, UNLIMITED)), 0, replace(PAPER, min_left_s=500))
    assert stays.kind is DecisionKind.NOTHING and "done in 400 s" in stays.reason


def test_more_work_until_a_suspension_is_taken() -> None:
    """`suspend`: what cannot complete goes where it makes the most work."""
    state, wider = running(HeldSubjob("a", 2, 600)), slots((16, 600))
    assert plan_running(state, wider, 0, PAPER).kind is DecisionKind.NOTHING
    decision = plan_running(state, wider, 0, replace(PAPER, suspend=True))
    assert (decision.kind, asked(decision)) == (DecisionKind.EXPAND, [(8, 600)])
    assert decision.timeline[-1].kind is PlannedKind.SUSPENDED


# How it is planned


def test_a_plan_goes_by_the_subjob_that_has_the_ranks() -> None:
    """The shell's own subjob beside it makes the job no faster, and has to last."""
    ranks, shell = HeldSubjob("a", 8, 99999), HeldSubjob("s", 4, 99999, anchor=True)
    assert expected_completion(running(ranks, shell), 0, PAPER)[0] == 2000
    assert expected_completion(replace(running(ranks, shell), node_limit=None), 0, PAPER)[0] == 2000
    assert math.isinf(expected_completion(running(ranks, replace(shell, end_s=500)), 0, PAPER)[0])
    left = plan_leaving(running(ranks, replace(shell, end_s=500)), 0, PAPER)
    assert left.kind is DecisionKind.GIVE_UP and "s holds the user's shell" in left.reason


def test_a_subjob_that_ends_is_a_suspension_or_the_end_of_the_plan() -> None:
    state = running(HeldSubjob("a", 4, 800))
    left = plan_leaving(state, 0, replace(PAPER, suspend=True))
    assert (left.kind, left.begin_s, left.end_s, left.cancel) == (DecisionKind.SUSPEND, 780, 800, ("a",))
    assert plan_leaving(state, 0, PAPER).kind is DecisionKind.GIVE_UP
    assert plan_leaving(running(HeldSubjob("a", 4, 99999)), 0, PAPER).kind is DecisionKind.NOTHING


def test_j0_is_moved_to_only_where_it_has_them_all_on_one_node() -> None:
    state = running(HeldSubjob("a", 4, 99999), work=600)
    narrow = plan_placeholder_start(state, 0, PAPER)
    assert "have to stay on one node, and J0 has 8 on one" in str([c.why for c in narrow.candidates])
    assert plan_placeholder_start(replace(state, node_limit=16), 0, PAPER).kind is DecisionKind.MOVE_TO_PLACEHOLDER


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20) | st.none()), max_size=4),
    st.integers(1, 40),
    st.integers(1, 12),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_a_limit_is_never_exceeded(
    found: list[tuple[int, int | None]], processes: int, limit: int, unit: int, whole: bool
) -> None:
    ordered = sorted({n: UNLIMITED if end is None else 300.0 * end for n, end in found}.items())
    stairs, shortest = [], UNLIMITED
    for processors, duration in ordered:
        shortest = min(shortest, duration)
        stairs.append((processors, shortest))
    params = BundlingParameters(lambda_s=20, suspend=True, processor_quantum=unit, whole_slots=whole)
    job = ElasticState("j", processes, 900, node_limit=limit)
    decision = plan_wait(job, slots(*stairs), 0, params)
    assert len(decision.requests) <= 1
    for request in decision.requests:
        assert request.processors <= limit and request.processors % unit == 0
        assert degree(processes, request.processors) <= params.omax
        held = replace(job, subjobs=(HeldSubjob("a", request.processors, request.length_s),))
        grows = plan_running(held, slots((64, UNLIMITED)), 0, params)
        assert all(more.processors <= limit for more in grows.requests)


# Simulated


@pytest.mark.parametrize("changes", [{}, {"suspend": True, "act_in_move": True}, {"whole_slots": True}], ids=str)
def test_a_simulated_job_is_on_one_node_at_a_time(changes: dict[str, Any]) -> None:
    log = generate(Model.LUBLIN, jobs=150, processors=64, seed=7)
    load = workload_of(log, "made", processors=64)
    free = BundlingParameters(lambda_s=60, **changes)
    anywhere = run(load, Policy.EJB, parameters=free, plain=True, checking=True)
    limited = run(load, Policy.EJB, parameters=replace(free, node_limit=8), plain=True, checking=True)
    wide = limited.elastic != 0
    assert wide.any() and np.all(limited.end > 0)
    rigid = run(load, Policy.EASY, plain=True)
    assert limited.end.mean() <= rigid.end.mean()
    assert limited.moves.sum() != anywhere.moves.sum()
    if "act_in_move" not in changes:  # one subjob at the start, one a move, and J0 where it starts over there
        assert np.all(limited.subjobs[wide] <= limited.moves[wide] + 2)
