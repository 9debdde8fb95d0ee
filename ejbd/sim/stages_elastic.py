"""The same workflows where each of their allocations is an elastic job (EJB's bundling), among a log's rigid jobs.

The engine of the simulator plays, interpreted: a stage is put into its list of submissions once the one before it has
ended. Few jobs are elastic, so that interpreting takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.sim.engine import PAPER_TIES, next_time, step
from ejbd.sim.run import Policy, refuse_fault
from ejbd.sim.stages import Fate, Flow, Played, Rules, Step, Way, step_needs_s, steps_as
from ejbd.sim.workload import Workload
from ejbd.sim.world import (
    ELASTIC,
    FAULT,
    NEXT,
    NOW,
    STAYS_RIGID,
    TOO_MANY_ELASTIC,
    TOO_MANY_SUBJOBS,
    Jobs,
    World,
    kernel_rules,
    new_world,
)


@dataclass(slots=True)
class _Playing:
    steps: tuple[Step, ...]
    fate: Fate
    at: int = 0
    asked_s: float = 0.0
    row: int = -1  # of the step that waits or runs; -1: it is to arrive


def play_elastic_flows(
    workload: Workload, flows: Sequence[Flow], rules: Rules, parameters: BundlingParameters
) -> Played:
    """What became of the workflows, and of the others. What a workflow held is what its subjobs held.

    FAST is not played. Raises SimulationError.
    """
    if rules.way is Way.FAST:
        raise ValueError("what is queued ahead is played as a rigid job alone")
    rows, width = 64, 32
    while True:
        game = _Game(workload, flows, rules, parameters, rows, width)
        game.play()
        if game.world.count[FAULT] == TOO_MANY_ELASTIC:
            rows *= 4
        elif game.world.count[FAULT] == TOO_MANY_SUBJOBS:
            width *= 2
        else:
            refuse_fault(game.world)
            return Played(game.fates, game.others_s)


class _Game:
    """One simulation in a world of that size."""

    def __init__(
        self,
        workload: Workload,
        flows: Sequence[Flow],
        rules: Rules,
        parameters: BundlingParameters,
        rows: int,
        width: int,
    ) -> None:
        self._rules = rules
        self.fates = [Fate(flow.arrive_s) for flow in flows]
        self._flows = [
            _Playing(steps_as(flow, rules.way), fate, asked_s=flow.arrive_s)
            for flow, fate in zip(flows, self.fates, strict=True)
        ]
        jobs, count = workload.jobs, len(workload)
        room = sum(len(flow.steps) for flow in self._flows)
        none = np.full(room, math.inf)
        made = Jobs(
            np.concatenate([jobs.submit, none]),
            np.concatenate([jobs.run, none]),
            np.concatenate([jobs.walltime, none]),
            np.concatenate([jobs.processors, np.ones(room, dtype=np.int64)]),
            np.arange(count + room),
        )
        wanted = np.full(count + room, STAYS_RIGID)
        self.world: World = new_world(made, workload.processors, wanted, elastic_rows=rows, width=width, plain=True)
        self._kernel_rules = kernel_rules(parameters, arrays=False)
        self._owner: list[_Playing | None] = [None] * (count + room)
        self._open: list[_Playing] = []
        for flow in sorted(self._flows, key=lambda flow: flow.asked_s):
            self._arrive(flow)

    def play(self) -> None:
        w = self.world
        known = 0
        while next_time(w) < math.inf and w.count[FAULT] == 0:
            step(w, int(Policy.EJB), PAPER_TIES, self._kernel_rules)
            for row in range(known, w.count[NEXT]):
                owner = self._owner[row]
                if owner is not None:
                    owner.row = row
                    self._open.append(owner)
            known = w.count[NEXT]
            for flow in [one for one in self._open if w.end[one.row] >= 0.0 and w.end[one.row] <= w.clock[NOW]]:
                self._ended(flow)

    @property
    def others_s(self) -> float:
        """The mean turnaround of the log's own jobs."""
        w = self.world
        rows = [row for row in range(w.count[NEXT]) if self._owner[row] is None]
        return sum(w.end[row] - w.submit[row] for row in rows) / max(1, len(rows))

    def _arrive(self, flow: _Playing) -> None:
        """Put its present step among the submissions, behind those of the same time."""
        w, one = self.world, flow.steps[flow.at]
        at = w.count[NEXT]
        while w.submit[at] <= flow.asked_s:
            at += 1
        needed_s = step_needs_s(one, flow.at, self._rules)
        walltime_s = self._rules.over * needed_s
        for vector, value in (
            (w.submit, flow.asked_s),
            (w.run, needed_s),
            (w.walltime, walltime_s),
            (w.planned, walltime_s),
            (w.processors, one.width),
            (w.candidate, ELASTIC),
            (self._owner, flow),
        ):
            _put(vector, at, value)

    def _ended(self, flow: _Playing) -> None:
        w, fate = self.world, flow.fate
        self._open.remove(flow)
        fate.waits_s.append(w.start[flow.row] - flow.asked_s)
        fate.held += w.used[flow.row]
        fate.end_s = w.end[flow.row]
        flow.at += 1
        if flow.at < len(flow.steps):
            flow.asked_s, flow.row = w.clock[NOW], -1
            self._arrive(flow)


def _put(vector: Any, at: int, value: Any) -> None:
    """A row that was kept free is used in front of `at`: the vector stays as long as it was."""
    vector.insert(at, value)
    vector.pop()
