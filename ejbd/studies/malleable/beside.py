"""What the paper lacks: bundling with the guard, the same with folding, and FCFS-malleable beside EASY, over Delta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ejbd.sim import progress
from ejbd.sim.settings import Setting, Source
from ejbd.sim.sweep import Kind, Point, sweep
from ejbd.studies.paper import printed

DELTAS = ("0.8", "1", "1.2", "1.5", "2")
GUARDED = {"policy": "ejb", "suspend": "on", "order": "least-work", "guard": "on", "trim": "paper"}
POLICIES: dict[str, dict[str, str]] = {
    "guard": GUARDED,
    "guard, folding": {**GUARDED, "fold": "on"},
    "malleable": {"policy": "fcfs-malleable", "model": "delta", "trim": "paper"},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation against EASY over the jobs that both count: changes of the mean turnaround in per cent (None where
    there is no such job), and of the mean bounded slowdown of all."""

    log: str
    policy: str
    delta: float
    all_jobs: float
    elastic: float | None
    others: float | None
    slowdown: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "log": self.log,
            "policy": self.policy,
            "delta": self.delta,
            "all_percent": self.all_jobs,
            "elastic_percent": self.elastic,
            "others_percent": self.others,
            "bounded_slowdown": self.slowdown,
        }


def play_beside(
    paths: Mapping[str, Path], out: Path, *, workers: int = 1, limit: int | None = None
) -> tuple[list[Cell], dict[str, float]]:
    """Simulate every cell; what has been done in `out`/cells is not done again. `limit`: the first rows of each log.

    The second answer: EASY's mean turnaround in seconds by log, over the jobs of the first cell.
    """
    known = {one.name: one for one in printed.TRACES}
    sources = {name: Source(path, known[name].processors, limit=limit) for name, path in paths.items()}
    named = [
        (log, policy, Point(source, Setting().having({**words, "delta": delta}), Kind.RUN))
        for log, source in sources.items()
        for policy, words in POLICIES.items()
        for delta in DELTAS
    ]

    def tell(done: int, total: int, name: str) -> None:
        progress.tell(f"{done} of {total} simulations" + (f", {name}" if name else ""), done / total)

    rows = sweep([point for *_, point in named], out / "cells", workers=workers, part=(1, 1), tell=tell)
    cells: list[Cell] = []
    easy: dict[str, float] = {}
    for (log, policy, point), row in zip(named, rows, strict=True):
        easy.setdefault(log, row["easy_mean_turnaround_s"])
        split = row["elastic_change_percent"], row["others_change_percent"]
        if policy == "malleable":  # which jobs are folded is known afterwards only
            split = None, None
        delta, all_jobs = float(str(point.setting.parameters.delta)), row["turnaround_change_percent"]
        cells.append(Cell(log, policy, delta, all_jobs, split[0], split[1], row["mean_bounded_slowdown"]))
    return cells, easy


def table(cells: list[Cell]) -> tuple[list[str], list[list[Any]]]:
    """Head and rows: all, elastic and other jobs of the policies side by side."""
    head = ["log", "Delta", *(f"{name}: all" for name in POLICIES)]
    head += [f"{name}: {of}" for of in ("elastic", "others") for name in ("guard", "guard, folding")]
    rows = []
    for log, delta in dict.fromkeys((cell.log, cell.delta) for cell in cells):
        here = {cell.policy: cell for cell in cells if (cell.log, cell.delta) == (log, delta)}
        row = [log, f"{delta:g}", *(_percent(here[name].all_jobs) for name in POLICIES)]
        row += [
            _percent(getattr(here[name], of)) for of in ("elastic", "others") for name in ("guard", "guard, folding")
        ]
        rows.append(row)
    return head, rows


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} %"
