"""Elastic jobs in the engine: one brain with the explained policies, the invariants, single targets."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ejbd.core.bundling.parameters import BundlingParameters, Order
from ejbd.core.room.slots import easy_slots
from ejbd.core.room.walltimes import asked_walltime
from ejbd.core.room.windows import windows
from ejbd.core.rungs import Rungs
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations
from ejbd.sim.engine import play_elastic
from ejbd.sim.run import Policy, SimulationError, refuse_fault, run
from ejbd.sim.settings import differing
from ejbd.sim.targets import run_targets
from ejbd.sim.workload import Workload
from ejbd.sim.world import FAULT, OVERCOMMITTED, Costs, new_world
from tests.fakes.sim_worlds import Row, SlowEjb, workload

BEYOND: list[dict[str, Any]] = [
    {},
    {"omax": 2},
    {"omax": 64, "lambda_s": 10.0},
    {"delta": 1.5},
    {"suspend": True},
    {"order": Order.LEAST_WORK},
    {"suspend": True, "order": Order.LEAST_WORK, "whole_slots": True},
    {"suspend": True, "order": Order.LEAST_WORK, "act_in_move": True, "omax": 32},
    {"min_left_s": 1800.0},
]


def busy(seed: int, count: int = 60) -> Workload:
    """A crowded little cluster. Times are spread so that hardly two events coincide."""
    dice = random.Random(seed)
    total = dice.choice([12, 32, 100])
    rows: list[Row] = []
    now = 0.0
    for _ in range(count):
        now += dice.randint(1, 700)
        walltime = dice.randint(200, 20_000)
        run = dice.choice([walltime, dice.randint(1, walltime), dice.randint(1, walltime)])
        rows.append((now, dice.randint(1, total), walltime, run))
    return workload(rows, total)


@pytest.mark.sampled(4, first=3)
@pytest.mark.slow
@pytest.mark.parametrize("changes", BEYOND, ids=str)
def test_the_engine_and_the_explained_policies_lead_to_the_same_lives(changes: dict[str, Any]) -> None:
    """The engine calls the kernels; the slow world calls plan_wait and its like. Neither may have a rule of its own."""
    parameters = BundlingParameters(**changes)
    elastic = moves = 0
    for seed in range(12):
        load = busy(seed)
        outcome = run(load, Policy.EJB, parameters=parameters, min_processors=4, checking=True, plain=True)
        slow = SlowEjb(load, parameters, 4).run()
        assert [job.start for job in slow] == outcome.start.tolist(), f"seed {seed}"
        assert [job.end for job in slow] == outcome.end.tolist(), f"seed {seed}"
        elastic += int(outcome.elastic.sum())
        moves += int(outcome.moves.sum())
    assert elastic > 100
    assert moves > 20


def test_without_a_candidate_ejb_is_easy() -> None:
    load = busy(3)
    easy = run(load, Policy.EASY, plain=True)
    ejb = run(load, Policy.EJB, min_processors=load.processors + 1, plain=True)
    assert easy.start.tolist() == ejb.start.tolist()
    assert not ejb.elastic.any()
    assert ejb.used.tolist() == (load.jobs.processors * load.jobs.run).tolist()


def test_processor_seconds_are_those_of_the_cluster() -> None:
    """What all jobs used fills the cluster exactly: nothing is counted twice, and nothing is lost."""
    load = busy(7)
    outcome = run(load, Policy.EJB, min_processors=4, plain=True)
    elastic = outcome.elastic != 0
    assert elastic.sum() > 10
    own = load.jobs.processors * load.jobs.run
    assert (outcome.used[~elastic] == own[~elastic]).all()
    # An over-subscribed processor is never idle, so that an elastic job needs no less than it would have
    # (all but the last second of it, since ends are whole seconds).
    assert (outcome.used[elastic] >= own[elastic] - load.jobs.processors[elastic]).all()


@pytest.mark.parametrize("suspend", [False, True])
def test_a_single_target_is_the_whole_log_with_one_candidate(suspend: bool) -> None:
    """Snapshots only save time: each target ends as in a simulation of its own from the beginning."""
    load = busy(5, count=50)
    parameters = BundlingParameters(suspend=suspend)
    runs = run_targets(load, parameters=parameters, min_processors=4, trim=False)
    assert runs.targets.size > 15
    for target in runs.targets.tolist():
        candidates = np.zeros(len(load), dtype=np.int64)
        candidates[target] = 1
        w = new_world(load.jobs, load.processors, candidates, elastic_rows=1, plain=True)
        play_elastic(w, int(Policy.EJB), 0, parameters.rules, True, -1)
        refuse_fault(w)
        fate = (w.start[target], w.end[target], w.subjobs[target], w.moves[target], w.used[target])
        found = runs.outcome
        assert fate == (
            found.start[target],
            found.end[target],
            found.subjobs[target],
            found.moves[target],
            found.used[target],
        )
    summary = runs.summary()
    assert summary["targets"] == runs.targets.size
    assert summary["wait_change_percent"] < 0
    fewer = run_targets(load, parameters=parameters, min_processors=4, trim=False, every=3)
    assert fewer.targets.tolist() == runs.targets.tolist()[::3]


def test_an_elastic_job_by_hand() -> None:
    """6 of 10 processors are busy until 1000; a job of 8 starts at 1 on two subjobs of 2 and moves to J0 at 1000.

    By then 989 s at degree 2 have done 494.5 of 600 s; the rest takes a move of 10 s and 105.5 s at full width.
    """
    load = workload([(0, 6, 1000, 1000), (1, 8, 600, 600)], 10)
    outcome = run(load, Policy.EJB, parameters=BundlingParameters(lambda_s=10), plain=True, checking=True)
    assert (outcome.start[1], outcome.end[1]) == (1, 1116)
    assert (outcome.subjobs[1], outcome.moves[1]) == (3, 2)  # J0, which runs it in the end, is the third


@pytest.mark.sampled(2, first=1)
@pytest.mark.parametrize("changes", [{}, {"suspend": True, "omax": 32, "act_in_move": True}], ids=str)
def test_costs_break_no_invariant(changes: dict[str, Any]) -> None:
    """Decisions do not count them, so a completion may come later than expected, and a play goes on all the same.

    What the launch takes must fit into the walltime, as it must live.
    """
    parameters = BundlingParameters(lambda_s=60, walltime_quantum_s=60, **changes)
    for seed in range(12):
        costs = Costs(launch_s=90, release_s=20, slack_s=200, keep_s=60)
        load = busy(seed, 80)
        jobs = load.jobs._replace(walltime=load.jobs.walltime + 300)
        load = Workload(load.name, load.processors, jobs)
        outcome = run(
            load, Policy.EJB, parameters=parameters, min_processors=4, checking=True, plain=True, costs=costs, unit=4
        )
        assert (outcome.end > outcome.start).all()


def test_the_costs_of_a_live_manager_by_hand() -> None:
    """The same job, which computes 5 s after its start, and holds its processors 3 s longer than it computes.

    984 s at degree 2 make 492 of 600 s. A third job waits for the subjob that is left: until the move is over.
    """
    rows: list[Row] = [(0, 6, 1000, 1000), (1, 8, 600, 600), (10, 2, 50, 50)]
    parameters = BundlingParameters(lambda_s=10)
    costs = Costs(launch_s=5, release_s=3, keep_s=10)
    at_once = run(workload(rows, 10), Policy.EJB, parameters=parameters, plain=True, checking=True)
    paid = run(workload(rows, 10), Policy.EJB, parameters=parameters, plain=True, checking=True, costs=costs)
    assert (at_once.start.tolist(), at_once.end.tolist()) == ([0, 1, 1000], [1000, 1116, 1050])
    assert (paid.start.tolist(), paid.end.tolist()) == ([0, 1, 1010], [1000, 1121, 1060])


def test_a_candidate_that_starts_at_once_pays_them_too() -> None:
    costs = Costs(launch_s=5, release_s=3)
    outcome = run(workload([(0, 8, 700, 600), (0, 1, 700, 600)], 10), Policy.EJB, plain=True, costs=costs)
    assert outcome.end.tolist() == [608, 600]


def test_a_subjob_asks_for_more_than_its_plan_as_far_as_its_slot_lasts() -> None:
    asked = {
        slack_s: [asked_walltime(240.0, slack_s, limit, 60.0) for limit in (np.inf, 300.0, 240.0)]
        for slack_s in (0.0, 30.0)
    }
    assert asked == {0.0: [240, 240, 240], 30.0: [300, 300, 240]}


def test_suspended_jobs_keep_their_work() -> None:
    """A slot that is too short for the whole job: it computes until 500 less a move, and resumes on J0."""
    rows: list[Row] = [(0, 6, 500, 500), (1, 8, 4000, 4000), (2, 10, 900, 900)]
    load = workload(rows, 10)
    plain = run(load, Policy.EJB, parameters=BundlingParameters(lambda_s=10, omax=2), plain=True)
    assert plain.start[1] == 500  # its degree would be 2 on 4 processors, and 8000 s are too long for the slot
    kept = run(load, Policy.EJB, parameters=BundlingParameters(lambda_s=10, omax=2, suspend=True), plain=True)
    assert kept.start[1] == 1
    assert kept.end[1] == 4500 - (490 - 1) / 2 + 10 + 0.5  # whole seconds


def test_the_slots_of_the_kernel_are_those_of_the_window() -> None:
    """`easy_slots` is the two-step staircase that `windows` makes of the whole view."""
    dice = random.Random(1)
    for _ in range(300):
        total, now = dice.randint(4, 40), float(dice.randint(0, 50))
        ends: list[float] = []
        freed: list[int] = []
        left = total
        while left > 1 and dice.random() < 0.9:
            freed.append(dice.randint(1, left - 1))
            left -= freed[-1]
            ends.append(now + dice.randint(1, 200))
        ends.sort()
        head = dice.randint(left + 1, total) if freed and dice.random() < 0.8 else 0
        processors, durations = [0, 0], [0.0, 0.0]
        count = easy_slots(head, ends, freed, len(ends), left, now, processors, durations)
        jobs = [
            BatchJobView(f"{i}", "r", "u", "q", BatchState.RUNNING, p, end_s=e)
            for i, (e, p) in enumerate(zip(ends, freed, strict=True))
        ]
        if head:
            jobs.append(BatchJobView("h", "h", "u", "q", BatchState.PENDING, head, 10_000.0))
        view = ClusterView(
            now,
            (NodeView("n", total, left, True, ("q",)),),
            tuple(jobs),
            (QueueView("q", True, None, 1, total),),
            Reservations.PROCESSORS,
        )
        found = [(s.processors, s.duration_s) for s in windows(view, "q", now).slots()]
        assert list(zip(processors, durations, strict=True))[:count] == found


def test_a_broken_invariant_is_an_error_that_says_what_broke() -> None:
    load = busy(1, count=3)
    w = new_world(load.jobs, load.processors, np.zeros(3, dtype=np.int64), elastic_rows=0, plain=True)
    w.count[FAULT] = OVERCOMMITTED
    with pytest.raises(SimulationError, match="more processors are given out than there are"):
        refuse_fault(w)


def test_a_world_made_too_small_is_made_again() -> None:
    """More concurrent elastic jobs than there are rows at first is no error."""
    rows: list[Row] = [(float(i), 4, 100_000, 50_000) for i in range(700)]
    load = workload([*rows], 700)
    outcome = run(load, Policy.EJB, min_processors=2, parameters=differing({"omax": "4"}).parameters, plain=True)
    assert (outcome.end > outcome.start).all()
    assert outcome.elastic.sum() > 512


@pytest.mark.parametrize(("quantum_s", "start"), [(1.0, 1), (60.0, 1), (500.0, 1000)])
def test_a_slot_is_cut_to_whole_quanta_of_walltime(quantum_s: float, start: float) -> None:
    """4 of 10 processors are free for 999 s; at degree 3 the job takes 900 s, which is more than one quantum of 500."""
    load = workload([(0, 6, 1000, 1000), (1, 10, 300, 300)], 10)
    parameters = BundlingParameters(lambda_s=10, walltime_quantum_s=quantum_s)
    outcome = run(load, Policy.EJB, parameters=parameters, plain=True, checking=True)
    assert outcome.start[1] == start


def ends(rows: list[Row], beyond: float, processors: int = 32) -> list[float]:
    parameters = BundlingParameters(lambda_s=10.0, rungs=Rungs(1.0, beyond=beyond), suspend=True)
    load = workload(rows, processors)
    outcome = run(load, Policy.EJB, parameters=parameters, min_processors=8, checking=True, plain=True)
    return [float(end) for end in outcome.end]


def test_a_reshaped_job_grows_beyond_what_it_asked_for_while_the_queue_is_empty_and_gives_that_back() -> None:
    wide, other = (0.0, 8, 4000, 4000), (500.0, 24, 600, 600)
    assert ends([wide], 1.0) == [4000.0]
    assert ends([wide], 4.0) == [10.0 + 4000 / 4], "a move, and four times as fast"
    first, second = ends([wide, other], 4.0)
    assert second == 500.0 + 10.0 + 600.0, "what was beyond is free after one move"
    assert 1010.0 < first < 4000.0


def test_growth_beyond_what_was_asked_for_keeps_every_invariant() -> None:
    for seed in range(6):
        load = busy(seed, 40)
        for suspend in (False, True):
            parameters = BundlingParameters(suspend=suspend, omax=16, rungs=Rungs(0.9, beyond=3.0))
            run(load, Policy.EJB, parameters=parameters, min_processors=4, checking=True, plain=True)
