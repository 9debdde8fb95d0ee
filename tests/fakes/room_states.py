"""Random states of a small cluster, each as a batch system shows it and as the simulator holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.easy import shadow_of
from ejbd.core.shapes import UNLIMITED
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations
from ejbd.sim.cluster import enqueue
from ejbd.sim.world import DUE, FREE, FREE_OF_COSTS, NOW, Costs, Jobs, World, new_world

START_S = 1_000_000.0


@dataclass(frozen=True)
class State:
    """Running jobs as (processors, seconds until their planned end), and the head of the queue (0: nobody waits).

    `unit`: processors of a node. `whole`: nodes are given out as a whole. `planned`: the batch system has told when the
    head is to start; else the windows find that out.
    """

    by: Reservations
    nodes: int
    unit: int
    whole: bool
    running: tuple[tuple[int, float], ...]
    head: int
    planned: bool
    walltime_quantum_s: float
    max_walltime_s: float | None

    @property
    def total(self) -> int:
        return self.nodes * self.unit

    @property
    def free(self) -> int:
        return self.total - sum(processors for processors, _ in self.running)

    @property
    def quantum(self) -> int:
        return self.unit if self.whole else 1

    @property
    def reserved(self) -> int:
        """Processors that a reservation is rounded up to whole multiples of."""
        return self.unit if self.by is Reservations.NODES else self.quantum

    def parameters(self, **changes: object) -> BundlingParameters:
        limit_s = UNLIMITED if self.max_walltime_s is None else self.max_walltime_s
        found = BundlingParameters(
            processor_quantum=self.quantum, walltime_quantum_s=self.walltime_quantum_s, max_walltime_s=limit_s
        )
        return replace(found, **changes)  # type: ignore[arg-type]

    def view(self, *more: BatchJobView) -> ClusterView:
        """As a batch system shows it. `more`: jobs behind the head."""
        names = [f"n{index}" for index in range(self.nodes)]
        jobs: list[BatchJobView] = []
        in_nodes = self.whole or self.by is Reservations.NODES
        idle = list(names)
        freed: list[tuple[float, str]] = []
        for number, (processors, seconds) in enumerate(self.running):
            on, idle = (idle[: processors // self.unit], idle[processors // self.unit :]) if in_nodes else ([], idle)
            freed += [(seconds, name) for name in on]
            jobs.append(
                BatchJobView(
                    str(number), "r", "eve", "q", BatchState.RUNNING, processors, end_s=START_S + seconds,
                    nodes=tuple(on),
                )
            )  # fmt: skip
        if in_nodes:
            nodes = [NodeView(n, self.unit, self.unit if n in idle else 0, True, ("q",)) for n in names]
        else:
            nodes = [NodeView("all", self.total, self.free, True, ("q",))]
        if self.head:
            head = BatchJobView("head", "h", "eve", "q", BatchState.PENDING, self.head, 30_000.0)
            found = shadow_of(self.head, sorted((s, p) for p, s in self.running), self.free, 0.0)
            if self.planned and found is not None:
                # On nodes that come free by then before those that are idle, as few of these as can be.
                until = [name for seconds, name in sorted(freed, reverse=True) if seconds <= found[0]] + idle
                planned = tuple(until[: -(-self.head // self.unit)]) if self.by is Reservations.NODES else ()
                head = replace(head, planned_start_s=START_S + found[0], planned_nodes=planned)
            jobs.append(head)
        queue = QueueView("q", True, self.max_walltime_s, self.quantum, self.total)
        return ClusterView(START_S, tuple(nodes), (*jobs, *more), (queue,), self.by, self.walltime_quantum_s)

    def world(self, job: tuple[int, float] = (1, 1.0), costs: Costs = FREE_OF_COSTS) -> World:
        """As the simulator holds it. Job 0 is the head; `job` (processes, walltime) is an elastic one, number 1."""
        shapes = [(max(1, self.head), 30_000.0), job]
        columns = np.array([START_S] * 2), np.array([s for _, s in shapes]), np.array([s for _, s in shapes])
        jobs = Jobs(*columns, np.array([p for p, _ in shapes]), np.arange(2))
        w = new_world(
            jobs, self.total, np.array([0, 1]), elastic_rows=1, width=8, plain=True, costs=costs, unit=self.reserved
        )
        w.clock[NOW] = START_S
        ends = sorted((START_S + seconds, processors) for processors, seconds in self.running)
        ends_, freed = w.ends, w.freed
        for _ in range(len(ends) - len(ends_) + 8):  # room for more releases than there are processors
            ends_.append(0.0), freed.append(0)  # type: ignore[attr-defined]
        for index, (end, processors) in enumerate(ends):
            w.ends[index], w.freed[index] = end, processors
        w.count[DUE], w.count[FREE] = len(ends), self.free
        if self.head:
            enqueue(w, 0)
        return w


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any state after a pass of EASY: the head does not fit."""
    by = draw(st.sampled_from(Reservations))
    nodes, unit, whole = draw(st.integers(2, 8)), draw(st.integers(1, 5)), draw(st.booleans())
    step = unit if whole or by is Reservations.NODES else 1
    left, total = nodes * unit, nodes * unit
    jobs = draw(st.sampled_from([0, 1, 1, 2, 3, 5]))
    running: list[tuple[int, float]] = []
    for _ in range(jobs):
        if left < step:
            break
        share = draw(st.integers(1, 3))
        processors = draw(st.integers(1, max(1, left // step // share))) * step
        running.append((processors, draw(st.integers(1, 20_000)) / draw(st.sampled_from([1, 2]))))
        left -= processors
    waits = draw(st.integers(0, 4)) > 0
    head = draw(st.integers(left + 1, total)) if running and waits else 0
    limit_s = draw(st.sampled_from([None, 900.0, 3600.0, 7200.0]))
    quantum_s = draw(st.sampled_from([1.0, 60.0, 300.0]))
    return State(by, nodes, unit, whole, tuple(running), head, draw(st.booleans()), quantum_s, limit_s)
