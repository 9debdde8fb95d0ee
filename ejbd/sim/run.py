"""One simulation from a workload and a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, keeps_turns
from ejbd.core.parameters import Parameters
from ejbd.errors import Code, EjbError
from ejbd.sim import cluster, engine
from ejbd.sim.metrics import Outcome
from ejbd.sim.playing import Game, Way, play
from ejbd.sim.workload import Workload
from ejbd.sim.world import (
    ELASTIC,
    EVENTS,
    FAULT,
    FAULTS,
    FREE_OF_COSTS,
    IDLE_S,
    NEXT,
    NOW,
    QUEUED_S,
    RIGID,
    STAYS_RIGID,
    TOO_MANY_ELASTIC,
    TOO_MANY_SUBJOBS,
    WITHOUT_J0,
    Costs,
    World,
    kernel_rules,
    new_world,
)

LOOK_EVERY = 10  # events


class Policy(IntEnum):
    """The scheduler. EJB is EASY with elastic jobs."""

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
    parameters: Parameters | None = None,
    min_processors: int = 8,
    candidates: Any = None,
    keep_placeholder: bool = True,
    checking: bool = False,
    plain: bool = False,
    costs: Costs = FREE_OF_COSTS,
    unit: int = 1,
    again: float = 1,
    folds: bool = False,
    short_runs: float = 0.0,
    plain_below: float = 0.0,
    stops: bool = False,
    look: Callable[[World], None] | None = None,
) -> Outcome:
    """Simulate every job to its end.

    `min_processors`: from which width on a job is a candidate (EJB only); or `candidates`, flags in the order of
    submission. `keep_placeholder`: J0 stays queued until it
    starts; without, it is cancelled as soon as a subjob carries the job to its end. `checking` looks at the invariants
    after every event. `plain` never compiles the kernels. `costs`: of a live manager (EJB only); a candidate's end is
    then the time at which its processors are free. `unit`: processors of a node, where the head of the queue gets
    whole nodes (EASY and EJB). `again`: how many simulations like this one are wanted, this one among them, for which
    compiling may be worth it. `folds`: with the guard, jobs are folded in place for one that waits where that does, and
    only else checkpointed. `short_runs`: candidates
    that could start at once are rigid where runs like them took less than so many times what starts and ends cost
    (:mod:`ejbd.core.shortruns`); 0: none is. `plain_below` (in place of it): these pay no start and no end on a J0
    that begins them after a wait, either. `stops`: a queue where elastic jobs have lately been late makes none
    elastic for a while (:mod:`ejbd.core.lateness`). `look` is shown the world every few events, and may change it.
    Raises SimulationError where an invariant does not hold.
    """
    asked = parameters or BundlingParameters()
    if candidates is None:
        candidates = workload.jobs.processors >= min_processors
    wanted = np.where(candidates, ELASTIC if keep_placeholder else WITHOUT_J0, STAYS_RIGID)
    cost_s = max(costs.launch_s, asked.start_up_s) + costs.release_s
    times = plain_below or short_runs
    likes = alike(workload) if times > 0.0 and policy is Policy.EJB else None
    rows, width = (512, 32) if policy is Policy.EJB else (0, 4)
    way = Way.PLAIN if plain else Way.AUTO
    elapsed_s = kernels_s = 0.0
    while True:

        def make(arrays: bool, rows: int = rows, width: int = width) -> tuple[Any, ...]:
            w = new_world(
                workload.jobs, workload.processors, wanted, elastic_rows=rows, width=width, plain=not arrays,
                costs=costs, unit=unit, folds=folds, likes=likes, short_s=times * cost_s,
                plain_j0s=plain_below > 0.0, stops=stops, turns=policy is Policy.EJB and keeps_turns(asked),
            )  # fmt: skip
            return w, int(policy), int(ties), kernel_rules(asked, arrays=arrays), checking

        played = play(_game(workload, policy, make, look), way, again)
        elapsed_s += played.elapsed_s
        kernels_s += played.kernels_s
        way = Way.COMPILED if played.compiled else way
        w: World = played.state[0]
        if w.count[FAULT] == TOO_MANY_ELASTIC:
            rows *= 4
        elif w.count[FAULT] == TOO_MANY_SUBJOBS:
            width *= 2
        else:
            break
    refuse_fault(w)
    return replace(outcome_of(w, elapsed_s), kernels_s=kernels_s, compiled=played.compiled)


def alike(workload: Workload) -> Any:
    """For each job the numbers of those that are like it: of one user at one width, and at any (two rows). -1: its user
    is not known."""
    if workload.users is None:
        return np.full((2, len(workload)), -1)
    both = np.stack([workload.users, workload.jobs.processors], axis=1)
    like = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
    kin = 1 + like.max(initial=-1) + np.unique(workload.users, return_inverse=True)[1].reshape(-1)
    return np.where(workload.users < 0, -1, np.stack([like, kin]))


def _game(
    workload: Workload,
    policy: Policy,
    make: Callable[[bool], tuple[Any, ...]],
    look: Callable[[World], None] | None = None,
) -> Game:
    """What is to be played, and what it takes about (an event of an interpreted EASY 10 us)."""
    jobs = len(workload)
    what = f"{workload.name}, {policy.name.lower()}"

    def done(state: tuple[Any, ...]) -> float:
        return float(state[0].count[NEXT]) / max(1, jobs)

    if policy is Policy.EJB:
        game = Game(what, engine.play_elastic, make, done, 50e-6 * jobs, 20.0)
        return game if look is None else replace(game, look=lambda state: look(state[0]), every=LOOK_EVERY)
    return Game(what, engine.play_rigid, make, done, 15e-6 * jobs, 8.0)


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
        without_workers=ints(w.without_workers),
    )
