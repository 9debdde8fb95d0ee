"""Where folding pays: FCFS-malleable against EASY by how long a job really takes on half of its processors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ejbd.core.malleable.stretching import Model
from ejbd.sim import progress
from ejbd.sim.malleable import run_malleable
from ejbd.sim.metrics import change
from ejbd.sim.run import Policy, run
from ejbd.sim.settings import Source, load
from ejbd.sim.workload import RowRule, Workload
from ejbd.studies.malleable.printed import BREAK_EVEN, LOGS
from ejbd.studies.malleable.runs import figures_of, part_of
from ejbd.studies.malleable.small import parameters

WHOLE = "KTH"  # no part of it is in the paper: all of its rows


@dataclass(frozen=True, slots=True)
class Point:
    """Changes of the mean response and of the bounded slowdown against EASY, in per cent, at a stretch."""

    log: str
    stretch: float
    response: float
    slowdown: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "log": self.log,
            "stretch": self.stretch,
            "response_change_percent": self.response,
            "bounded_slowdown_change_percent": self.slowdown,
        }


def break_even(paths: Mapping[str, Path]) -> list[Point]:
    """Simulate each log at each stretch."""
    workloads: list[Workload] = [part_of(paths[log.name], log) for log in LOGS if log.name in paths]
    if WHOLE in paths:
        workloads.append(load(Source(paths[WHOLE], 100, RowRule.ARCHIVE)))
    names = [log.name for log in LOGS if log.name in paths] + [WHOLE] * (WHOLE in paths)
    found = []
    for number, (name, workload) in enumerate(zip(names, workloads, strict=True)):
        with progress.part(f"break-even, {name}", number / len(names), (number + 1) / len(names)):
            easy = figures_of(workload, run(workload, Policy.EASY, plain=True))
            for stretch in BREAK_EVEN:
                of = parameters(model=Model.STRETCH, stretch=stretch)
                ours = figures_of(workload, run_malleable(workload, of))
                found.append(
                    Point(name, stretch, change(easy.response_s, ours.response_s), change(easy.bounded, ours.bounded))
                )
    return found


def table(points: list[Point]) -> tuple[list[str], list[list[Any]]]:
    """Head and rows: mean response / bounded slowdown, another implementation's figure, then ours."""
    names = list(dict.fromkeys(point.log for point in points))
    head = ["stretch", *(f"{name}{of}" for name in names for of in (" (other)", ""))]
    rows = []
    for stretch, known in BREAK_EVEN.items():
        row: list[Any] = [f"{stretch:.1f}"]
        for name in names:
            one = next(point for point in points if (point.log, point.stretch) == (name, stretch))
            response, slowdown = known[name]
            row += [f"{response:+.0f} / {slowdown:+.0f}", f"{one.response:+.0f} / {one.slowdown:+.0f}"]
        rows.append(row)
    return head, rows


def farthest(points: list[Point]) -> float:
    """By how many points a figure is farthest from the other implementation's."""
    return max(
        max(abs(round(p.response) - known[0]), abs(round(p.slowdown) - known[1]))
        for p in points
        for known in (BREAK_EVEN[p.stretch][p.log],)
    )
