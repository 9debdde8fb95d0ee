"""One simulation from a workload and a policy."""

from __future__ import annotations

import time
from enum import IntEnum
from typing import Any

import numpy as np

from ejbd.core.plan import BundlingParameters
from ejbd.errors import Code, EjbError
from ejbd.sim import cluster, engine
from ejbd.sim.compiled import compiled
from ejbd.sim.metrics import Outcome
from ejbd.sim.workload import Workload
from ejbd.sim.world import (
    ELASTIC,
    EVENTS,
    FAULT,
    FAULTS,
    FREE_OF_COSTS,
    IDLE_S,
    NOW,
    QUEUED_S,
    RIGID,
    STAYS_RIGID,
    TOO_MANY_ELASTIC,
    TOO_MANY_SUBJOBS,
    WITHOUT_J0,
    Costs,
    World,
    new_world,
)


class Policy(IntEnum):
    """Who schedules. EJB is EASY with elastic jobs."""

    FCFS = cluster.FCFS
    EASY = cluster.EASY
    CONSERVATIVE = cluster.CONSERVATIVE
    EJB = cluster.EJB


class Ties(IntEnum):
    """What comes first at one time: terminations, submissions, or all together with one pass for them."""

    PAPER = engine.PAPER_TIES
    PYSS = engine.PYSS_TIES
    BATCH = engine.BATCH_TIES


class SimulationError(EjbError):
    """The simulated world broke one of its own rules, which is a fault of EJB's."""


def run(
    workload: Workload,
    policy: Policy,
    *,
    ties: Ties = Ties.PAPER,
    parameters: BundlingParameters | None = None,
    min_processors: int = 8,
    keep_placeholder: bool = True,
    checking: bool = False,
    plain: bool = False,
    costs: Costs = FREE_OF_COSTS,
    unit: int = 1,
) -> Outcome:
    """Simulate every job to its end.

    `min_processors`: from which width on a job is a candidate (EJB only). `keep_placeholder`: J0 stays queued until it
    starts; without, it is cancelled as soon as a subjob carries the job to its end. `checking` looks at the invariants
    after every event. `plain` runs the kernels uncompiled. `costs`: of a live manager (EJB only); a candidate's end is
    then the time at which its processors are free. `unit`: processors of a node, where the head of the queue gets
    whole nodes (EASY and EJB). Raises SimulationError where an invariant does not hold.
    """
    rules = (parameters or BundlingParameters()).rules
    wide = workload.jobs.processors >= min_processors
    candidates = np.where(wide, ELASTIC if keep_placeholder else WITHOUT_J0, STAYS_RIGID)
    rows, width = (512, 32) if policy is Policy.EJB else (0, 4)
    begin = time.perf_counter()
    play = engine.simulate if plain else compiled(engine.simulate)
    while True:
        w = new_world(
            workload.jobs,
            workload.processors,
            candidates,
            elastic_rows=rows,
            width=width,
            plain=plain,
            costs=costs,
            unit=unit,
        )
        play(w, int(policy), int(ties), rules, checking)
        if w.count[FAULT] == TOO_MANY_ELASTIC:
            rows *= 4
        elif w.count[FAULT] == TOO_MANY_SUBJOBS:
            width *= 2
        else:
            break
    refuse_fault(w)
    return outcome_of(w, time.perf_counter() - begin)


def refuse_fault(w: World) -> None:
    """Raise SimulationError if an invariant did not hold."""
    if w.count[FAULT]:
        raise SimulationError(
            Code.INTERNAL, f"at {w.clock[NOW]:.0f} s of the simulation: {FAULTS[int(w.count[FAULT])]}"
        )


def outcome_of(w: World, elapsed_s: float) -> Outcome:
    """What became of the jobs of a world."""

    def floats(vector: Any) -> Any:
        return np.asarray(vector, dtype=np.float64)

    def ints(vector: Any) -> Any:
        return np.asarray(vector, dtype=np.int64)

    return Outcome(
        floats(w.start),
        floats(w.end),
        floats(w.used),
        floats(w.moved),
        ints(w.subjobs),
        ints(w.moves),
        (ints(w.mode) != RIGID).astype(np.int64),
        float(w.clock[IDLE_S]),
        float(w.clock[QUEUED_S]),
        int(w.count[EVENTS]),
        elapsed_s,
    )
