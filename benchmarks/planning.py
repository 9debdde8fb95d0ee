"""How long the planning of one poll takes: windows, then a decision for every waiting elastic job, with takes.

    python benchmarks/planning.py [--elastic 1000] [--queued 10000] [--nodes 4096] [--runs 7]

The cluster is busy, as it is when planning matters: most nodes are full and some are partly free. Once the head alone
has a reservation, counted in processors (EASY), and once every queued job has a planned start on named nodes (a
conservative batch system). Beside each figure stands its ratio to a plain baseline measured in the same run: decoding
the same view from JSON. Aim: under 0.25 s in all.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict

from ejbd.core.bundling.handlers import plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.room.windows import windows
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations

NOW = 1_700_000_000.0
PROCESSORS_A_NODE = 32
QUEUE = "batch"


def make_view(nodes: int, queued: int, reservations: Reservations, dice: random.Random) -> ClusterView:
    """A busy cluster: one node in eight has free processors, jobs of 1 to 128 nodes run and wait."""
    names = [f"n{i:05d}" for i in range(nodes)]
    free = [dice.randint(1, PROCESSORS_A_NODE) if dice.random() < 1 / 8 else 0 for _ in names]
    node_views = tuple(
        NodeView(name, PROCESSORS_A_NODE, idle, True, (QUEUE,), "mixed" if idle else "allocated")
        for name, idle in zip(names, free, strict=True)
    )
    jobs: list[BatchJobView] = []
    at = 0
    while at < nodes:
        width = min(dice.choice([1, 1, 2, 4, 8, 32, 128]), nodes - at)
        held = sum(PROCESSORS_A_NODE - idle for idle in free[at : at + width])
        end = NOW + dice.randint(60, 86_400)
        jobs.append(
            BatchJobView(
                f"{100_000 + at}",
                f"run-{at}",
                "alice",
                QUEUE,
                BatchState.RUNNING,
                held,
                86_400,
                start_s=NOW - 3600,
                end_s=end,
                nodes=tuple(names[at : at + width]),
            )
        )
        at += width
    for index in range(queued):
        by_name = reservations is Reservations.NODES
        width = dice.choice([1, 1, 2, 4, 8, 32, 128]) if by_name or index else nodes - nodes // 100  # EASY's head
        first = dice.randrange(max(1, nodes - width))
        start = NOW + 600 + index * 30 + dice.randint(0, 600)
        jobs.append(
            BatchJobView(
                f"{200_000 + index}",
                f"wait-{index}",
                "bob",
                QUEUE,
                BatchState.PENDING,
                width * PROCESSORS_A_NODE,
                float(dice.randint(10, 1440) * 60),
                submit_s=NOW - 600,
                planned_start_s=start if by_name else None,
                planned_nodes=tuple(names[first : first + width]) if by_name else (),
            )
        )
    queue = QueueView(QUEUE, True, None, 1, nodes * PROCESSORS_A_NODE)
    return ClusterView(NOW, node_views, tuple(jobs), (queue,), reservations, 60.0)


def make_states(count: int, waiting: bool, dice: random.Random) -> list[ElasticState]:
    states = []
    for index in range(count):
        processes = dice.choice([8, 16, 32, 64, 128, 256])
        requested = float(dice.randint(10, 1440) * 60)
        if waiting:
            states.append(ElasticState(f"e{index}", processes, requested))
            continue
        first = max(1, processes // 8)
        held = (
            HeldSubjob(f"e{index}/1", first, NOW + 8 * requested),
            HeldSubjob(f"e{index}/2", first, NOW + dice.randint(600, 7200)),
        )
        states.append(ElasticState(f"e{index}", processes, requested, requested * dice.random() / 2, held))
    return states


def plan(view: ClusterView, states: list[ElasticState], params: BundlingParameters) -> tuple[int, int]:
    """One poll's planning. Returns how many jobs got subjobs, and how many takes that made."""
    left = windows(view, QUEUE, NOW)
    slots = left.slots()
    acted = takes = 0
    for state in states:
        decide = plan_running if state.subjobs else plan_wait
        decision = decide(state, slots, NOW, params)
        if decision.requests:
            acted += 1
            for request in decision.requests:
                left = left.take(request.processors, request.length_s)
                takes += 1
            slots = left.slots()
    return acted, takes


def timed(call: Callable[[], object], runs: int) -> list[float]:
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return seconds


def line(label: str, seconds: list[float], baseline: float) -> str:
    least, middle, most = min(seconds), statistics.median(seconds), max(seconds)
    return f"{label:44s} {least * 1e3:9.1f} {middle * 1e3:9.1f} {most * 1e3:9.1f} {middle / baseline:9.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elastic", type=int, default=1000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    params = BundlingParameters(walltime_quantum_s=60.0)

    print(f"{options.elastic} elastic jobs x {options.queued} queued x {options.nodes} nodes, {options.runs} runs")
    for reservations in Reservations:
        dice = random.Random(options.seed)
        view = make_view(options.nodes, options.queued, reservations, dice)
        waiting = make_states(options.elastic, True, dice)
        running = make_states(options.elastic, False, dice)
        text = json.dumps(asdict(view))
        baseline_runs = timed(lambda text=text: json.loads(text), options.runs)  # type: ignore[misc]
        baseline = statistics.median(baseline_runs)

        first = windows(view, QUEUE, NOW).slots()
        most = first[-1].processors if first else 0
        print(f"\nreservations in {reservations.value}: {len(first)} slots, {most} processors usable now")
        print(f"{'ms':44s} {'min':>9s} {'median':>9s} {'max':>9s} {'x JSON':>9s}")
        print(line(f"json.loads of the same view, {len(text) / 1e6:.1f} MB", baseline_runs, baseline))
        seconds = timed(lambda view=view: windows(view, QUEUE, NOW), options.runs)  # type: ignore[misc]
        print(line("windows", seconds, baseline))
        for label, states in (("waiting", waiting), ("running", running)):
            acted, takes = plan(view, states, params)
            seconds = timed(lambda view=view, states=states: plan(view, states, params), options.runs)  # type: ignore[misc]
            print(line(f"whole poll, all {label}: {acted} act, {takes} takes", seconds, baseline))


if __name__ == "__main__":
    main()
