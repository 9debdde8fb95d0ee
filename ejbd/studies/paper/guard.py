"""`ejb sim reproduce guard`: EJB with the guard against EASY, over Delta, lambda and start-up, on the paper's logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ejbd.sim import progress
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.settings import Setting, Source
from ejbd.sim.sweep import Kind, grid, sweep
from ejbd.studies import plotting
from ejbd.studies.paper.logs import logs_in

AXES = {
    "delta": ("1", "1.2", "1.5", "2", "3"),
    "lambda": ("0", "120", "1800", "7200"),
    "startup": ("0", "60", "600"),
}
QUICK = {"delta": ("1", "3"), "lambda": ("0", "120"), "startup": ("0", "600")}
QUICK_ROWS = 3000  # of each log
SETTING = {"policy": "ejb", "suspend": "on", "order": "least-work", "guard": "on", "trim": "paper"}
PROMISED = 1.0  # per cent: no mean turnaround is to be longer than EASY's by more


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation: changes of the mean turnaround against EASY in per cent, None where there is no such job."""

    log: str
    delta: float
    lambda_s: float
    start_up_s: float
    all_jobs: float
    elastic: float | None
    others: float | None

    @property
    def worst(self) -> float:
        """Of all jobs, or of those that are not elastic: the promise is to both."""
        return self.all_jobs if self.others is None else max(self.all_jobs, self.others)

    @property
    def where(self) -> str:
        return f"{self.log}, Delta {self.delta:g}, lambda {self.lambda_s:g} s, start-up {self.start_up_s:g} s"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "log": self.log,
            "delta": self.delta,
            "lambda_s": self.lambda_s,
            "start_up_s": self.start_up_s,
            "all_percent": self.all_jobs,
            "elastic_percent": self.elastic,
            "others_percent": self.others,
        }


def reproduce_guard(
    traces: Path, out: Path, *, workers: int = 1, limit: int | None = None, quick: bool = False
) -> list[Path]:
    """Simulate every cell and write guard.md, guard.json, guard.csv and a plot to `out`; the files, the page first.

    Results are kept in `out`/cells, so that what was interrupted goes on. `quick`: few cells, and of each log the first
    rows, unless `limit` says how many. Of the paper's four logs those count that are in `traces`; raises EjbError where
    none is.
    """
    rows = limit or (QUICK_ROWS if quick else None)
    sources = {known.name: Source(path, known.processors, limit=rows) for known, path in logs_in(traces)}
    axes = QUICK if quick else AXES
    points = list(grid(list(sources.values()), Setting().having(SETTING), axes, Kind.RUN))

    def tell(done: int, total: int, name: str) -> None:
        progress.tell(f"{done} of {total} simulations" + (f", {name}" if name else ""), done / total)

    found = sweep(points, out / "cells", workers=workers, part=(1, 1), tell=tell)
    names = {source.path.name: name for name, source in sources.items()}
    cells = [_cell(names[row["trace"]], row) for row in found]
    return _write(out, cells, rows)


def _cell(log: str, row: dict[str, Any]) -> Cell:
    given = row["parameters"]
    changes = row["turnaround_change_percent"], row["elastic_change_percent"], row["others_change_percent"]
    all_jobs = 0.0 if changes[0] is None else changes[0]
    return Cell(log, given["delta"], given["lambda_s"], given["start_up_s"], all_jobs, *changes[1:])


def verdict(cells: Sequence[Cell]) -> str:
    """The worst cell, and in how many the promise is not kept."""
    worst = max(cells, key=lambda cell: cell.worst)
    broken = sum(cell.worst > PROMISED for cell in cells)
    kept = (
        f"In none of the {len(cells)} cells is it more than {PROMISED:g} % above EASY's."
        if not broken
        else f"In {broken} of the {len(cells)} cells it is more than {PROMISED:g} % above EASY's."
    )
    told = f"all {_percent(worst.all_jobs)}, elastic {_percent(worst.elastic)}, others {_percent(worst.others)}"
    return f"Worst cell: {worst.where}: mean turnaround of {told}. {kept}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} %"


def _write(out: Path, cells: Sequence[Cell], rows: int | None) -> list[Path]:
    head = ["log", "Delta", "lambda (s)", "start-up (s)", "all", "elastic", "others"]
    table = [
        [cell.log, f"{cell.delta:g}", f"{cell.lambda_s:g}", f"{cell.start_up_s:g}",
         _percent(cell.all_jobs), _percent(cell.elastic), _percent(cell.others)]
        for cell in cells
    ]  # fmt: skip
    write_csv(out / "guard.csv", head, table)
    document = {"rows_of_each_log": rows, "verdict": verdict(cells), "cells": [cell.to_json() for cell in cells]}
    (out / "guard.json").write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    plots = _plot(out, cells)
    some = f"Only the first {rows} rows of each log were simulated.\n\n" if rows else ""
    text = (
        f"# The guard against EASY\n\n{verdict(cells)}\n\n{some}![worst over all start-ups]({plots[0].name})\n\n"
        "Change of the mean turnaround against EASY, jobs of 8 processors and more elastic.\n\n"
        f"{markdown_table(head, table)}"
    )
    (out / "guard.md").write_text(text, encoding="utf-8")
    return [out / "guard.md", out / "guard.json", out / "guard.csv", *plots]


def _plot(out: Path, cells: Sequence[Cell]) -> list[Path]:
    """A panel for each log, a line for each lambda: the worst over all start-ups, over Delta."""
    logs = list(dict.fromkeys(cell.log for cell in cells))
    size = (2.8 * len(logs), 2.7)
    figure, panels = plotting.pyplot().subplots(1, len(logs), figsize=size, sharey=True, squeeze=False)
    for axes, log in zip(panels[0], logs, strict=True):
        here = [cell for cell in cells if cell.log == log]
        for lambda_s, look in zip(sorted({cell.lambda_s for cell in here}), plotting.looks(), strict=False):
            line = sorted((cell.delta, cell.worst) for cell in here if cell.lambda_s == lambda_s)
            points = [(delta, max(y for _, y in group)) for delta, group in groupby(line, key=lambda one: one[0])]
            axes.plot([x for x, _ in points], [y for _, y in points], label=f"lambda {lambda_s:g} s", **look)
        axes.axhline(0.0, color="black", linewidth=0.6)
        axes.set_title(log)
        axes.set_xlabel("Delta")
    panels[0][0].set_ylabel("change of mean turnaround (%)")
    plotting.legend_above(figure, panels[0][0])
    return plotting.save(figure, out, "guard")
