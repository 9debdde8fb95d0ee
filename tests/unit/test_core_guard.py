"""The guard: elastic jobs only borrow. Its rules one by one, in simulated worlds, and the costs that go with it."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.cli.options import output
from ejbd.cli.show import jobs as showing
from ejbd.core.bundling.guard import (
    COMPUTES_S,
    LOOKED_AT,
    comes_late,
    give_back,
    is_dear,
    longest_move_s,
    may_give_back,
    worth_suspending_s,
)
from ejbd.core.bundling.handlers import plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.delta import parse_delta
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.sim.compiled import NUMBA_PLAIN, compiled
from ejbd.sim.elastic import held_processors
from ejbd.sim.engine import PAPER_TIES, next_time, step
from ejbd.sim.invariants import check
from ejbd.sim.metrics import Outcome
from ejbd.sim.models import Model, generate
from ejbd.sim.own import run_policy
from ejbd.sim.run import Policy, refuse_fault, run
from ejbd.sim.settings import Setting
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import DONE, EVENTS, FREE, NOW, ON_PLACE_HOLDER, QUEUED, RUNNING, VISITS, new_world
from tests.fakes.sim_worlds import Row, workload
from tests.nightly import examples
from tests.unit.test_sim_elastic import busy

LIVE = BundlingParameters(suspend=True, order=Order.LEAST_WORK, guard=Guard.ON)
OFF = replace(LIVE, guard=Guard.OFF)

Waiting = tuple[int, float, int]  # processors, walltime, whether its job runs elsewhere
Holding = tuple[int, float, float]  # processors, seconds that its room lasts, seconds that a move takes


def given_back(
    queue: Sequence[Waiting],
    holders: Sequence[Holding],
    available: int = 0,
    coming: int = 0,
    rule: Callable[..., int] = give_back,
    make: Callable[[list[Any], type[Any]], Any] = lambda values, of: values,
) -> list[int]:
    """For which place in the queue each holder gives back what it holds (-1: for none)."""
    wanted, walltimes, served = ([one[at] for one in queue] for at in range(3))
    held, room, moves = ([one[at] for one in holders] for at in range(3))
    gives = make([7] * len(holders), int)
    found = rule(
        make(wanted, int), make(walltimes, float), make(served, int), len(queue), available, coming,
        make(held, int), make(room, float), make(moves, float), len(holders), gives,
    )  # fmt: skip
    answer = [int(place) for place in gives]
    assert found == sum(place >= 0 for place in answer)
    return answer


# Who gives back


def test_the_head_of_the_queue_gets_what_it_needs_from_the_narrowest_that_has_it() -> None:
    assert given_back([(4, 9999, 0)], [(5, 10, 10), (3, 10, 10), (4, 10, 10)], available=1) == [-1, 0, -1]


def test_where_no_single_one_has_it_the_widest_give_first_and_no_more_than_it_takes() -> None:
    assert given_back([(8, 9999, 0)], [(3, 10, 10), (4, 10, 10), (2, 10, 10)], available=1) == [0, 0, -1]


def test_nobody_gives_for_a_head_that_would_not_fit_all_the_same() -> None:
    assert given_back([(11, 100, 0)], [(3, 999, 0), (4, 999, 0), (2, 999, 0)], available=1) == [-1, -1, -1]


def test_nobody_gives_for_a_head_that_fits_already() -> None:
    assert given_back([(4, 100, 0)], [(8, 9999, 0)], available=4) == [-1]


def test_one_behind_the_head_must_end_before_the_room_that_it_gets() -> None:
    head = (99, 100.0, 0)
    assert given_back([head, (4, 100, 0)], [(4, 109, 10)]) == [-1]
    assert given_back([head, (4, 100, 0)], [(4, 110, 10)]) == [1]
    assert given_back([(4, 100, 0)], [(4, 109, 10)]) == [0], "the head need not: it keeps the processors"


def test_one_behind_the_head_gets_it_from_one_alone() -> None:
    assert given_back([(99, 100, 0), (4, 100, 0)], [(2, 999, 0), (3, 999, 0)]) == [-1, -1]


def test_a_job_that_runs_elsewhere_is_given_nothing_unless_its_place_holder_heads_the_queue() -> None:
    assert given_back([(99, 100, 0), (4, 100, 1)], [(4, 999, 0)]) == [-1]
    assert given_back([(4, 100, 1)], [(4, 999, 0)]) == [0]


def test_what_the_head_takes_is_not_there_for_those_behind_it() -> None:
    """What is free, or on its way, is the head's; the second has none of it, and gets its own."""
    queue = [(4, 100, 0), (4, 100, 0)]
    assert given_back(queue, [(4, 999, 0)], available=4) == [-1], "nothing is left over that is on its way"
    assert given_back(queue, [(4, 999, 0)], available=5, coming=5) == [1]
    assert given_back(queue, [(4, 999, 0), (5, 999, 0)]) == [0, 1]
    assert given_back(queue, [(4, 999, 0)], available=8, coming=8) == [-1]


def test_only_the_first_of_the_queue_are_looked_at() -> None:
    queue = [(99, 100.0, 0)] * LOOKED_AT
    assert given_back([*queue[1:], (4, 100, 0)], [(4, 999, 0)]) == [LOOKED_AT - 1]
    assert given_back([*queue, (4, 100, 0)], [(4, 999, 0)]) == [-1]


def test_what_is_borrowed_is_given_back_but_not_what_is_over_soon() -> None:
    rules = LIVE.rules  # lambda 120: two moves are 240 s
    assert may_give_back(8, 4, 1000, 1000, rules)
    assert not may_give_back(8, 8, 1000, 1000, rules), "at full width it borrows nothing"
    assert may_give_back(8, 8, math.inf, 1000, rules), "at full width for a while only"
    assert not may_give_back(8, 0, 1000, 1000, rules)
    assert not may_give_back(8, 4, 240, 1000, rules), "it is done soon"
    assert not may_give_back(8, 4, 1000, 240, rules), "its room ends soon"
    assert not may_give_back(8, 4, 1000, 1000, OFF.rules)


RUNS_S = 10_000.0  # how long runs last: a move may take 450 s of that at best
KNOWN = replace(LIVE, runs_s=RUNS_S)


@pytest.mark.parametrize(
    ("degree", "seconds", "lambda_s", "start_up_s", "late"),
    [
        (2, 5000, 400, 19, False),
        (2, 5000, 400, 21, True),
        (8, 5000, 195, 0, False),
        (8, 5000, 196, 0, True),
        (8, 150, 200, 25, False),  # over by half of five minutes, with moves of half of the longest
        (8, 151, 200, 25, True),
        (2, 1, 450, 0, True),
        (1, 5000, 1800, 600, False),  # nothing is over-subscribed
    ],
)
def test_room_is_not_borrowed_where_a_move_is_a_large_part_of_how_long_runs_last(
    degree: int, seconds: float, lambda_s: float, start_up_s: float, late: bool
) -> None:
    costs: dict[str, Any] = {"lambda_s": lambda_s, "start_up_s": start_up_s}
    assert comes_late(64, degree, seconds, replace(KNOWN, **costs).rules) is late
    assert not comes_late(64, degree, seconds, replace(OFF, **costs).rules)
    longer = replace(KNOWN, **costs, runs_s=100 * RUNS_S)
    assert not comes_late(64, degree, seconds, longer.rules), "where runs last for long nobody minds"


def test_with_how_long_moves_room_is_borrowed_has_no_step_in_delta_degree_or_runs() -> None:
    def longest(delta: float = 1.0, degree: int = 2, runs_s: float = RUNS_S) -> float:
        return longest_move_s(64, degree, replace(LIVE, delta=delta, runs_s=runs_s).rules)

    assert longest() == pytest.approx(420.0)
    by_delta = [longest(delta=1.0 + step / 100) for step in range(100)]
    assert all(0.0 <= before - after <= 10.0 for before, after in pairwise(by_delta))
    assert by_delta[-1] < 0.0, "from 1.8 on at none"
    by_degree = [longest(degree=degree) for degree in range(2, 9)]
    assert by_degree == sorted(by_degree, reverse=True) and by_degree[-1] == pytest.approx(195.0)
    by_runs = [longest(runs_s=1000.0 * step) for step in range(1, 100)]
    assert all(after - before == pytest.approx(42.0) for before, after in pairwise(by_runs))
    assert longest(runs_s=0.0) == longest(runs_s=9000.0), "where nothing has ended yet"


def test_what_a_suspended_run_has_to_be_worth_grows_without_a_step() -> None:
    """With runs of 10,000 s no move of 450 s and more is worth it."""

    def worth(lambda_s: float, runs_s: float = RUNS_S) -> float:
        return worth_suspending_s(replace(LIVE, lambda_s=lambda_s, runs_s=runs_s).rules)

    assert [worth(lambda_s, 1e12) for lambda_s in (0, 50, 100, 600, 1000)] == pytest.approx([0, 50, 200, 3600, 6_000])
    assert worth(225) == pytest.approx(2 * 4.5 * 225)
    assert worth(450) == worth(2000) == math.inf
    grown = [worth(lambda_s) for lambda_s in range(420)]
    assert all(0 <= after - before < 0.1 * max(100, after) for before, after in pairwise(grown))
    assert worth_suspending_s(replace(OFF, lambda_s=1000).rules) == 1000


@pytest.mark.parametrize(
    ("delta", "degree", "seconds", "dear"),
    [
        ("1.79", 2, 5000, False),
        ("1.8", 2, 5000, True),
        ("3", 2, 211, False),  # over within five minutes, less what moves of two minutes leave of them
        ("3", 2, 212, True),
        ("3", 1, 5000, False),  # nothing is over-subscribed
        ("2:1.1,8:1.9", 2, 5000, False),
        ("2:1.1,8:1.9", 8, 5000, True),
    ],
)
def test_nothing_is_borrowed_at_a_degree_at_which_it_does_too_little(
    delta: str, degree: int, seconds: float, dear: bool
) -> None:
    given = replace(LIVE, delta=parse_delta(delta))
    assert is_dear(64, degree, seconds, given.rules) is dear
    assert is_dear(64, degree, seconds, replace(given, pace=1.3).rules) is dear, "measured by the pace at full width"
    assert not is_dear(64, degree, seconds, replace(given, guard=Guard.OFF).rules)


# The same in decisions


def slots(*pairs: tuple[int, float]) -> tuple[BackfillSlot, ...]:
    return tuple(BackfillSlot(*pair) for pair in pairs)


def starts(params: BundlingParameters, *room: tuple[int, float], requested: float = 1000) -> Decision:
    """What a job of 16 processes does that waits."""
    return plan_wait(ElasticState("job", 16, requested, 0), slots(*room), 0, params)


def test_a_start_with_a_long_move_waits_for_its_full_width() -> None:
    slow = replace(KNOWN, lambda_s=400, start_up_s=21)
    refused = starts(slow, (8, UNLIMITED))
    assert (refused.kind, refused.requests) == (DecisionKind.NOTHING, ())
    assert "could not be given back in time: a move takes 421 s" in refused.reason
    assert starts(replace(slow, guard=Guard.OFF), (8, UNLIMITED)).kind is DecisionKind.START
    assert starts(replace(slow, start_up_s=19), (8, UNLIMITED)).kind is DecisionKind.START
    assert starts(slow, (16, UNLIMITED)).kind is DecisionKind.START, "nothing is over-subscribed"
    slow = replace(slow, lambda_s=421, start_up_s=0)
    assert starts(slow, (8, UNLIMITED), requested=9).kind is DecisionKind.START, (
        "18 s of 300 s, nearly all of them gone"
    )
    assert starts(slow, (8, UNLIMITED), requested=10).kind is DecisionKind.NOTHING


def test_room_that_ends_is_not_taken_over_subscribed_with_a_long_move_either() -> None:
    slow = replace(KNOWN, lambda_s=571)
    assert starts(slow, (8, 1500)).kind is DecisionKind.NOTHING
    assert starts(slow, (4, UNLIMITED), (8, 1500)).kind is DecisionKind.NOTHING
    assert starts(replace(slow, guard=Guard.OFF), (8, 1800)).kind is DecisionKind.START


def test_with_long_moves_a_run_that_is_to_be_suspended_is_worth_six_of_them() -> None:
    quick, slow = (replace(LIVE, lambda_s=lambda_s, runs_s=1e9) for lambda_s in (100, 600))
    assert starts(slow, (16, 4201), requested=9000).kind is DecisionKind.START, "600 + 6 * 600"
    assert starts(slow, (16, 4199), requested=9000).kind is DecisionKind.NOTHING
    assert starts(replace(slow, guard=Guard.OFF), (16, 1300), requested=9000).kind is DecisionKind.START
    assert starts(quick, (16, 301), requested=9000).kind is DecisionKind.START, "with short ones two of them"
    assert starts(quick, (16, 299), requested=9000).kind is DecisionKind.NOTHING


def test_a_dear_start_waits_for_its_full_width_and_says_why() -> None:
    dear = replace(LIVE, delta=2.0)
    for room in ([(8, UNLIMITED)], [(8, 3000.0)], [(4, UNLIMITED), (8, 3000.0)]):
        refused = starts(dear, *room)
        assert (refused.kind, refused.requests) == (DecisionKind.NOTHING, ())
    assert "would cost the others too much at this degree: Delta is 2" in starts(dear, (8, UNLIMITED)).reason
    assert starts(replace(dear, guard=Guard.OFF), (8, UNLIMITED)).kind is DecisionKind.START
    assert starts(dear, (16, UNLIMITED)).kind is DecisionKind.START
    assert starts(dear, (8, UNLIMITED), requested=52).kind is DecisionKind.START, "52 s become 208"


# What start-up, giving back and pace do to decisions

MOVE = BundlingParameters(lambda_s=100)


def grows(params: BundlingParameters, work: float = 0) -> Decision:
    """What a job of 16 processes does that runs on 8 processors, where 8 more are free."""
    state = ElasticState("job", 16, 1000, work, (HeldSubjob("J1", 8, 100_000),))
    return plan_running(state, slots((8, UNLIMITED)), 0, params)


@pytest.mark.parametrize(
    ("changes", "done_s", "price"),
    [
        ({}, 2000, 16.0),  # 8 processors for 2000 s, for 1000 s of its work
        ({"start_up_s": 60}, 2060, 16.48),
        ({"pace": 1.1}, 2200, 17.6),
        ({"giving_back_s": 100}, 2000, 16.8),
        ({"delta": 1.5}, 3000, 24.0),
        ({"start_up_s": 60, "pace": 1.1, "giving_back_s": 100}, 2260, 18.88),
    ],
)
def test_a_start_takes_longer_by_its_start_up_and_pace_and_costs_what_it_holds(
    changes: dict[str, Any], done_s: float, price: float
) -> None:
    decision = starts(replace(MOVE, **changes), (8, UNLIMITED))
    assert decision.expected_completion_s == done_s
    assert decision.candidates[0].price == price
    assert decision.requests[0].length_s == done_s


@pytest.mark.parametrize(
    ("changes", "done_s", "price"),
    [
        # A move of 100 s, 1000 s at full width: 900 s are gained of 2000. Spent: 16 x 100 s of the move.
        ({}, 1100, 1.78),
        # Meanwhile the 8 do 25 s. 875 s are gained for 2 x 8 x 150 + 16 x 975 - 16 x 1000 processor-seconds.
        ({"start_up_s": 50}, 1125, 2.29),
        ({"start_up_s": 50, "giving_back_s": 30}, 1125, 2.56),
        ({"pace": 1.1}, 1200, 1.6),
    ],
)
def test_growth_takes_longer_by_the_start_up_and_costs_what_its_processors_wait_for(
    changes: dict[str, Any], done_s: float, price: float
) -> None:
    decision = grows(replace(MOVE, **changes))
    assert (decision.kind, decision.expected_completion_s) == (DecisionKind.EXPAND, done_s)
    assert decision.candidates[0].price == price
    assert decision.timeline[-1].end_s == done_s


def test_growth_that_does_not_pay_for_its_start_up_is_not_made() -> None:
    """200 s of work are left, 400 s as it is. With a move of 100 s they take 300, so a start-up has 200 to spend."""
    assert grows(MOVE, work=800).expected_completion_s == 300
    assert grows(replace(MOVE, start_up_s=190), work=800).kind is DecisionKind.EXPAND
    assert grows(replace(MOVE, start_up_s=200), work=800).kind is DecisionKind.NOTHING
    assert "done in 400 s" in grows(replace(MOVE, start_up_s=301), work=800).reason


def test_a_suspended_start_that_does_not_pay_for_its_start_up_is_not_made() -> None:
    """500 s of room, 100 of them for the move off it: what is made in the rest at degree 2 must be worth a move."""
    short = replace(MOVE, suspend=True)
    taken = starts(short, (8, 500))
    assert [c.name for c in taken.candidates if c.feasible] == ["suspend"]
    assert taken.candidates[-1].price == 20.0  # 8 x 500 for 200 s of work
    assert starts(replace(short, start_up_s=60), (8, 500)).candidates[-1].price == 23.53  # for 170 s
    assert starts(replace(short, start_up_s=66), (8, 500)).kind is DecisionKind.START  # (400 - 66) / 2 > 166
    assert starts(replace(short, start_up_s=67), (8, 500)).kind is DecisionKind.NOTHING
    assert starts(replace(short, pace=1.9), (8, 500)).kind is DecisionKind.START
    assert starts(replace(short, pace=2.0), (8, 500)).kind is DecisionKind.NOTHING  # 100 s: no more than the move


def test_what_gains_nothing_has_no_price() -> None:
    refused = starts(MOVE, (8, 500))
    assert [candidate.price for candidate in refused.candidates] == [None, None]
    late = grows(replace(MOVE, start_up_s=200), work=800)
    assert [candidate.price for candidate in late.candidates] == [None]


def test_what_is_chosen_tells_its_price_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """As `ejb explain` and `--dry-run` print it."""

    def told(decision: Decision) -> list[str]:
        showing.decision(decision.to_json(), output(False, False))
        return [line.strip() for line in capsys.readouterr().out.splitlines() if "price" in line]

    assert told(starts(MOVE, (8, UNLIMITED))) == ["price: 16 processor-seconds for each second of the job's own work"]
    assert told(grows(MOVE)) == ["price: 1.78 processor-seconds for each second by which it ends earlier"]
    assert told(starts(MOVE, (8, 500))) == [], "nothing is chosen"


# In the simulator, by hand

BORROWED: list[Row] = [(0, 6, 1000, 1000), (1, 8, 600, 600), (10, 4, 100, 100)]


def played(load: Workload, parameters: BundlingParameters, narrowest: int = 8) -> Outcome:
    return run(load, Policy.EJB, parameters=parameters, min_processors=narrowest, plain=True, checking=True)


def test_an_over_subscribed_job_gives_back_what_it_holds_once_a_waiting_one_fits() -> None:
    """A job of 8 runs on 4 when a job of 4 comes at 10: a checkpoint later, at 20, it starts there.

    The elastic one has done 4.5 s by then; it goes on at 120 by a move of 10 s, and makes 430 s of its work until 990.
    Its place holder starts at 1000, and does the other 165.5 s after a move.
    """
    guarded = played(workload(BORROWED, 10), replace(LIVE, lambda_s=10))
    assert (guarded.start.tolist(), guarded.end.tolist()) == ([0, 1, 20], [1000, 1176, 120])
    alone = played(workload(BORROWED, 10), replace(OFF, lambda_s=10))
    assert alone.start[2] == alone.end[1] == 1116, "without a guard it waits until both others are done"


def test_what_comes_free_for_the_head_is_not_lent_again_before_the_others_give_back_the_rest() -> None:
    """At 100 six come free. With the four that the second holds over-subscribed they are what the head, its J0, waits
    for: it moves there, and the third gets the two that are over. Lent to the third first, the second was done at 7516
    and the third at 10455.
    """
    rows: list[Row] = [(0, 6, 5000, 100), (1, 8, 5000, 5000), (2, 8, 6000, 6000)]
    outcome = played(workload(rows, 10), replace(LIVE, lambda_s=10))
    assert (outcome.start.tolist(), outcome.end.tolist()) == ([0, 1, 110], [100, 5071, 9841])


def test_nobody_takes_room_while_some_is_on_its_way_back() -> None:
    """From 10 on a job of 8 gives back its 4 processors for one of 4. Two others come free at 15, which another elastic
    job would have at once: it gets them at 20, when the one of 4 has started.
    """
    rows: list[Row] = [(0, 4, 1000, 1000), (0, 2, 100, 15), (1, 8, 600, 600), (6, 8, 500, 500), (10, 4, 100, 100)]
    outcome = played(workload(rows, 10), replace(LIVE, lambda_s=10))
    assert outcome.start.tolist() == [0, 0, 1, 20, 20]


def test_start_up_and_pace_in_a_simulated_life() -> None:
    """At degree 2 from 1 on, and on J0 after a move of 10 s from 1000 on.

    989 s at degree 2 do 494.5 of 600 s; 984 s, where the ranks begin 5 s later, 492; with a pace of 1.1 it is 449.5.
    """
    rows: list[Row] = [(0, 6, 1000, 1000), (1, 8, 600, 600)]

    def end(**changes: Any) -> float:
        return float(played(workload(rows, 10), BundlingParameters(lambda_s=10, **changes)).end[1])

    assert end() == 1116
    assert end(start_up_s=5) == 1118
    assert end(pace=1.1) == 1010 + math.ceil(600 - 989 / 2.2)


def test_room_that_who_waits_does_not_start_in_is_not_given_back_again_and_again() -> None:
    """Between two moves a job computes, were it for a second. With moves that cost nothing this was an endless loop:
    the last of the four does not start in what is given back for it, which the elastic one takes again at once.
    """
    rows: list[Row] = [(0, 4, 3298, 3229), (187, 5, 1273, 996), (270, 1, 5385, 1481), (270, 2, 2018, 1525)]
    assert live_through(workload(rows, 6), replace(LIVE, lambda_s=0, delta=1.5)) < 100


# In small simulated worlds


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Workload, BundlingParameters]:
    """A crowded little cluster with elastic jobs of 3 and more."""
    total = draw(st.integers(6, 14))
    rows: list[Row] = []
    now = 0.0
    for _ in range(draw(st.integers(4, 16))):
        now += draw(st.integers(0, 200))
        walltime = draw(st.integers(30, 6000))
        rows.append((now, draw(st.integers(1, total)), walltime, draw(st.integers(1, walltime))))
    lambda_s, start_up_s = draw(st.sampled_from([0.0, 10.0, 120.0])), draw(st.sampled_from([0.0, 30.0]))
    delta = draw(st.sampled_from([1.0, 1.5, 3.0]))
    return workload(rows, total), replace(LIVE, lambda_s=lambda_s, start_up_s=start_up_s, delta=delta)


def given_out(w: Any) -> list[int]:
    """How many subjobs each job has taken; not of those that are on their J0 (or done), which is theirs."""
    return [0 if mode in (ON_PLACE_HOLDER, DONE) else n for mode, n in zip(w.mode, w.subjobs, strict=True)]


def on_the_way(w: Any) -> set[int]:
    """Jobs that are giving back what they hold."""
    return {w.visits[at] for at in range(w.count[VISITS]) if w.gives_back[w.visits[at]]}


def look(w: Any, parameters: BundlingParameters) -> None:
    """The promise in its own words: unless some room is being left already, nobody who waits could be helped by a job
    that is over-subscribed for longer than two moves, and has computed for a second."""
    if w.count[QUEUED] == 0 or any(w.leaving[w.visits[at]] for at in range(w.count[VISITS])):
        return
    now, free = w.clock[NOW], w.count[FREE]
    borrowers = []
    for job in (w.visits[at] for at in range(w.count[VISITS])):
        held = held_processors(w, job)
        if (
            w.mode[job] != RUNNING
            or w.leaving[job]
            or w.stalled[job] + COMPUTES_S > now
            or not 0 < held < w.processors[job]
        ):
            continue
        ends = w.held.ends[w.row[job]]
        if min(ends[w.held_count[job] - 1], w.expected[job]) - now > 2 * parameters.lambda_s:
            borrowers.append((held, ends[w.held_count[job] - 1]))
    assert not borrowers or free + sum(held for held, _ in borrowers) < w.queue_processors[0]
    for at in range(1, w.count[QUEUED]):
        if w.mode[w.queue[at]] != RUNNING:
            for held, until in borrowers:
                ends = now + parameters.lambda_s + w.queue_walltime[at]
                assert not (free < w.queue_processors[at] <= free + held and ends <= until)


def live_through(load: Workload, parameters: BundlingParameters) -> int:
    """Play a world to its end with a look after every event: how often somebody gave back what he held."""
    candidates = (load.jobs.processors >= 3).astype(np.int64)
    w: Any = new_world(load.jobs, load.processors, candidates, elastic_rows=len(load), plain=True)
    rules = parameters.rules
    gave = 0
    while next_time(w) < math.inf:
        assert w.count[EVENTS] < 1000 * len(load), "somebody takes and gives back for ever"
        before, under_way = given_out(w), on_the_way(w)
        step(w, int(Policy.EJB), PAPER_TIES, rules)
        check(w, int(Policy.EJB), rules)
        refuse_fault(w)
        look(w, parameters)
        gave += len(on_the_way(w) - under_way)
        if on_the_way(w) & under_way:
            assert all(now <= then for now, then in zip(given_out(w), before, strict=True))
    assert all(end > 0 for end in w.end)
    return gave


@settings(max_examples=examples(150))
@given(worlds())
def test_who_waits_gets_what_is_borrowed_and_nobody_takes_any_meanwhile(
    world: tuple[Workload, BundlingParameters],
) -> None:
    live_through(*world)


def test_that_happens_often_in_crowded_worlds() -> None:
    """Else the property above would say nothing."""
    assert sum(live_through(busy(seed), replace(LIVE, delta=1.5)) for seed in range(3)) > 10


@pytest.fixture(scope="module")
def compiled_rule() -> Callable[..., int]:
    if importlib.util.find_spec("numba") is None or os.environ.get(NUMBA_PLAIN, "0") != "0":
        pytest.skip("numba is not installed, or switched off")
    i, f = np.zeros(1, dtype=np.int64), np.zeros(1)
    return compiled(give_back, (i, f, i, 1, 0, 0, i, f, f, 1, i))


TIMES = st.integers(1, 40).map(lambda tens: 10.0 * tens)
QUEUES = st.lists(st.tuples(st.integers(1, 12), TIMES, st.integers(0, 1)), max_size=8)
HOLDERS = st.lists(st.tuples(st.integers(1, 8), TIMES, st.sampled_from([0.0, 10.0, 120.0])), max_size=6)


@pytest.mark.slow
@given(QUEUES, HOLDERS, st.integers(0, 8), st.integers(0, 8))
def test_the_compiled_rule_is_the_plain_one(
    compiled_rule: Callable[..., int], queue: list[Waiting], holders: list[Holding], free: int, coming: int
) -> None:
    def arrays(values: list[Any], of: type[Any]) -> Any:
        return np.array(values, dtype=np.int64 if of is int else np.float64)

    available = free + coming
    plain = given_back(queue, holders, available, coming)
    assert given_back(queue, holders, available, coming, compiled_rule, arrays) == plain


@given(QUEUES, HOLDERS, st.integers(0, 8))
def test_nobody_gives_back_for_one_who_does_not_get_it_all(
    queue: list[Waiting], holders: list[Holding], free: int
) -> None:
    answer = given_back(queue, holders, free)
    served = sorted(set(answer) - {-1})
    for place in served:
        givers = [holder for holder, at in zip(holders, answer, strict=True) if at == place]
        got = sum(held for held, _, _ in givers)
        if place == 0:
            assert queue[0][0] <= free + got
            assert free + got - min(held for held, _, _ in givers) < queue[0][0], "one of them gives for nothing"
            continue
        ((_, room, move),) = givers
        assert room >= queue[place][1] + move
        assert not queue[place][2]
    all_given = sum(holder[0] for holder, at in zip(holders, answer, strict=True) if at >= 0)
    assert sum(queue[place][0] for place in served) <= free + all_given


# Off, and what it is worth


def fate(outcome: Outcome) -> tuple[float, float, float, int]:
    return outcome.start.sum(), outcome.end.sum(), outcome.used.sum(), int(outcome.moves.sum())


# Of the commit before there was a guard: sums of starts, ends and processor-seconds, and moves.
PAPER_BEFORE = {3: (4439663, 4923808, 2319223, 28), 7: (5111856, 5676356, 7187705, 39)}
LIVE_BEFORE = {3: (3180329, 4350725, 2348063, 30), 7: (3902071, 5164581, 7275264, 53)}


@pytest.mark.parametrize("seed", [3, 7])
def test_without_the_guard_everything_is_as_it_was_before_there_was_one(seed: int) -> None:
    load = busy(seed)
    assert fate(played(load, BundlingParameters(), 4)) == PAPER_BEFORE[seed]
    assert fate(played(load, OFF, 4)) == LIVE_BEFORE[seed]


def test_auto_is_on_where_jobs_are_suspended() -> None:
    assert Setting().parameters == BundlingParameters(guard=Guard.AUTO)
    assert [replace(LIVE, guard=Guard.AUTO, suspend=on).rules.guard for on in (True, False)] == [1, 0]
    assert replace(LIVE, suspend=False).rules.guard == 1
    assert BundlingParameters().rules.guard == 0, "the paper's algorithm has none"


def test_of_ends_within_one_second_the_batch_systems_order_holds_where_nothing_is_borrowed() -> None:
    """J0 that began as any batch job ends as one: not ahead of what began before it, which may backfill first."""
    load = workload([
        (0.0, 16, 10.0, 10.0), (1.0, 4, 40.0, 20.0), (1.0, 8, 40.0, 20.0),  # the third is elastic, and starts on J0
        (2.0, 12, 100.0, 50.0), (3.0, 8, 15.0, 15.0),  # the head, and what may go ahead of it
    ], 16)  # fmt: skip
    elastic = np.array([0, 0, 1, 0, 0])
    easy = run(load, Policy.EASY, plain=True)
    assert easy.end[1] == easy.end[2] == 30 and easy.start.tolist() == [0, 10, 10, 45, 30]
    long_moves = replace(LIVE, lambda_s=7200.0)
    for outcome in (
        run(load, Policy.EJB, parameters=long_moves, candidates=elastic, plain=True, checking=True),
        run_policy(load, "bundling", parameters=long_moves, candidates=elastic, checking=True),
    ):
        assert outcome.elastic.tolist() == [0, 0, 1, 0, 0]
        assert outcome.start.tolist() == easy.start.tolist() and outcome.end.tolist() == easy.end.tolist()
    off = run(load, Policy.EJB, parameters=replace(OFF, lambda_s=7200.0), candidates=elastic, plain=True)
    assert off.start.tolist() == [0, 10, 10, 30, 80], "the paper's order: applications first"


@pytest.mark.slow
def test_where_over_subscription_is_dear_others_pay_without_the_guard_and_nobody_does_with_it() -> None:
    """Delta 1.5: a job on half of its processors holds them three times as long."""
    parameters = {name: replace(given, delta=1.5) for name, given in (("off", OFF), ("on", LIVE))}
    total = dict.fromkeys(("easy", "easy, others", *parameters, *(f"{name}, others" for name in parameters)), 0.0)
    for seed in (1, 2, 3):
        log = generate(Model.UNIFORM, jobs=250, processors=32, seed=seed, load=0.85, overestimate=2.0)
        load = workload_of(log, "made", processors=32)
        narrow = load.jobs.processors < 8
        assert 20 < narrow.sum() < 230
        outcomes = {name: played(load, given) for name, given in parameters.items()}
        for name, outcome in (("easy", run(load, Policy.EASY, plain=True)), *outcomes.items()):
            turnaround = outcome.end - load.jobs.submit
            total[name] += turnaround.sum()
            total[f"{name}, others"] += turnaround[narrow].sum()
    for whom in ("", ", others"):
        assert total[f"off{whom}"] > 1.2 * total[f"easy{whom}"], "else there is nothing to guard against"
        assert total[f"on{whom}"] <= total[f"easy{whom}"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 6])
def test_on_a_busy_machine_all_jobs_gain_where_over_subscription_costs_half_as_much_again(seed: int) -> None:
    """What the first guard lost most on: bursts at a load of .95, requests of up to ten times the run, Delta 1.5."""
    log = generate(Model.BURSTY, jobs=400, processors=64, seed=seed, load=0.95, overestimate=10.0)
    load = workload_of(log, "made", processors=64)
    easy, ejb = run(load, Policy.EASY, plain=True), played(load, replace(LIVE, delta=1.5))
    assert ejb.end.sum() - load.jobs.submit.sum() < easy.end.sum() - load.jobs.submit.sum()
