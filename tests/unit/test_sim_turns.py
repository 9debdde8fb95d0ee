"""Turns: no J0 starts before its turn under plain EASY while a job that is not elastic waits beyond its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.core.bundling.turns import are_later, beyond_s, is_before
from ejbd.errors import EjbError
from ejbd.sim import engine
from ejbd.sim.engine import PAPER_TIES, next_time, step
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, Ties, refuse_fault, run
from ejbd.sim.settings import Setting, Source, play, play_targets
from ejbd.sim.swf import write_swf
from ejbd.sim.turns import keep_turns
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import (
    ELASTIC,
    KEPT,
    NOW,
    ON_PLACE_HOLDER,
    QUEUED,
    RIGID,
    RUNNING,
    WAITING,
    kernel_rules,
    new_world,
)  # fmt: skip

TURNS = BundlingParameters(
    suspend=True, order=Order.LEAST_WORK, guard=Guard.ON, delta=1.3, lambda_s=120.0, j0_in_turn=True
)


def a_log(model: Model = Model.LUBLIN, seed: int = 500, jobs: int = 300) -> Workload:
    log = generate(model, jobs=jobs, processors=64, seed=seed, load=0.95, overestimate=10.0)
    return workload_of(log, model.value, processors=64)


@pytest.mark.parametrize("model", [Model.LUBLIN, Model.BURSTY])
def test_without_an_elastic_job_the_shadow_is_what_happens(model: Model) -> None:
    load = a_log(model)
    rigid = [0] * len(load)
    w: Any = new_world(load.jobs, load.processors, np.array(rigid), elastic_rows=1, plain=True, turns=True)
    while next_time(w) < np.inf:
        step(w, Policy.EJB, PAPER_TIES, kernel_rules(TURNS, arrays=False))
    assert w.shadows.loose.start[:-1] == w.start
    assert w.start == run(load, Policy.EASY, plain=True).start.tolist()


@pytest.mark.parametrize("unit", [1, 16])  # processors of a node
def test_no_j0_starts_before_its_turn_while_the_others_are_later(unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nodes of several processors the others are late by the later of two turns, and J0s go by the sooner."""
    load = a_log()
    wide = np.where(load.jobs.processors >= 8, ELASTIC, 0)
    w: Any = new_world(load.jobs, load.processors, wide, elastic_rows=512, plain=True, turns=True, unit=unit)
    rules = kernel_rules(TURNS, arrays=False)
    stayed = went = 0
    either = False
    forbidden: list[int] = []

    def watched(w: Any) -> None:
        nonlocal either, forbidden, stayed, went
        assert not [job for job in forbidden if w.mode[job] == ON_PLACE_HOLDER]
        keep_turns(w)
        now, late = w.clock[NOW], {RIGID: 0.0, WAITING: 0.0, RUNNING: 0.0}
        queue = w.queue[: w.count[QUEUED]]
        for job in queue:
            two = (w.shadows.loose.start[job], w.shadows.strict.start[job])
            late[w.mode[job]] += beyond_s(max(two) if w.mode[job] == RIGID else min(two), now)
            either = either or two[0] != two[1]
        later = are_later(late[RIGID], late[WAITING])
        soonest_s = np.minimum(w.shadows.loose.start, w.shadows.strict.start)
        forbidden = [job for job in queue if later and w.mode[job] != RIGID and is_before(soonest_s[job], now)]
        stayed, went = max(stayed, w.count[KEPT]), went + int(late[RIGID] > 0.0 and not later)

    monkeypatch.setattr(engine, "keep_turns", watched)
    while next_time(w) < np.inf:
        step(w, Policy.EJB, PAPER_TIES, rules)
        refuse_fault(w)
    assert stayed and went, "the rule had something to do, and not to do"
    assert either == (unit > 1), "with nodes of one processor it is one shadow"
    assert min(w.end) > 0, "what stays is not left behind"


@pytest.mark.slow
def test_jobs_that_are_not_elastic_are_harmed_less() -> None:
    load = a_log(jobs=1000)
    easy = run(load, Policy.EASY, plain=True)
    others = []
    for turns in (False, True):
        given = BundlingParameters(
            suspend=True, order=Order.LEAST_WORK, guard=Guard.ON, delta=1.3, lambda_s=600.0, j0_in_turn=turns
        )
        ejb = run(load, Policy.EJB, parameters=given, plain=True, checking=True)
        others.append((ejb.end - easy.end)[ejb.elastic == 0].mean())
    assert others[1] < others[0]


def test_all_of_a_second_at_once_come_to_an_end() -> None:
    """With the ties of a batch system an event of the shadow is not waited for again and again."""
    load = a_log(jobs=300)
    for lambda_s in (0.0, 120.0):
        given = BundlingParameters(
            suspend=True, order=Order.LEAST_WORK, guard=Guard.ON, delta=1.3, lambda_s=lambda_s, j0_in_turn=True
        )
        ejb = run(load, Policy.EJB, ties=Ties.BATCH, parameters=given, plain=True, checking=True)
        assert min(ejb.end) > 0


def test_turns_are_refused_where_they_are_not_simulated(tmp_path: Path) -> None:
    log = tmp_path / "a.swf"
    write_swf(log, generate(Model.UNIFORM, jobs=20, processors=16, seed=1))
    source = Source(log, 16)
    on = Setting().having({"suspend": "on", "j0-in-turn": "on"})
    with pytest.raises(EjbError, match="without turns of J0"):
        play_targets(source, on)
    with pytest.raises(EjbError, match="j0-in-turn, are for EJB's own policy"):
        play(source, on.having({"fair-half-life": "3600"}))


def test_turns_are_a_matter_of_the_guard() -> None:
    assert TURNS.rules.j0_in_turn
    assert not BundlingParameters(j0_in_turn=True, guard=Guard.OFF).rules.j0_in_turn
