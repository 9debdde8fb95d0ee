"""Gains and losses by width and length: a grid of jobs.

Wide jobs wait longer than narrow ones, and with elastic jobs less so (Liu & Weissman, SC'15, section 6.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ejbd.sim.metrics import Outcome, change, finite
from ejbd.sim.world import Jobs

WIDTHS = (1, 2, 8, 16, 32, 64, 128, 256)  # the least processors of each class
LENGTHS_S = (0, 600, 3600, 4 * 3600, 12 * 3600)  # the least run time of each class
LENGTH_NAMES = ("to 10 min", "10 to 60 min", "1 to 4 h", "4 to 12 h", "12 h and more")


@dataclass(frozen=True, slots=True)
class Cell:
    """The jobs of one width (processors) and one length (true run time): how many, and their mean turnaround (seconds)
    before and after; which share of them (0 to 1) ends later."""

    width: str
    length: str
    jobs: int
    before_s: float
    after_s: float
    later: float

    @property
    def change_percent(self) -> float:
        """Of the mean turnaround; not a number where there is none."""
        return change(self.before_s, self.after_s)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "processors": self.width,
            "run": self.length,
            "jobs": self.jobs,
            "mean_turnaround_before_s": self.before_s,
            "mean_turnaround_s": self.after_s,
            "turnaround_change_percent": finite(self.change_percent),
            "later_percent": 100.0 * self.later,
        }


def width_names(widest: int) -> list[str]:
    """The classes of width up to that of the widest job."""
    bounds = [least for least in WIDTHS if least <= widest]
    names = [f"{low}" if high == low + 1 else f"{low} to {high - 1}" for low, high in pairwise(bounds)]
    return [*names, f"{bounds[-1]}" if bounds[-1] == widest else f"{bounds[-1]} and more"] if bounds else []


def grid(jobs: Jobs, before: Outcome, after: Outcome, kept: Any) -> list[Cell]:
    """A cell for each width and length of which there are jobs among those that `kept` flags, by width, then length."""
    width_of = np.searchsorted(WIDTHS, jobs.processors, side="right") - 1
    length_of = np.searchsorted(LENGTHS_S, jobs.run, side="right") - 1
    old, new = before.end - jobs.submit, after.end - jobs.submit
    cells = []
    for width, width_name in enumerate(width_names(int(jobs.processors.max(initial=0)))):
        for length, length_name in enumerate(LENGTH_NAMES):
            chosen = kept & (width_of == width) & (length_of == length)
            count = int(np.count_nonzero(chosen))
            if count:
                later = float((new[chosen] > old[chosen] + 1.0).mean())
                means = float(old[chosen].mean()), float(new[chosen].mean())
                cells.append(Cell(width_name, length_name, count, *means, later))
    return cells


def table_of(cells: list[Cell]) -> tuple[list[str], list[list[str]]]:
    """A head and a row for each width: the change of the mean turnaround in each length, and how many jobs that is."""
    by_place = {(cell.width, cell.length): cell for cell in cells}
    rows = []
    for width in dict.fromkeys(cell.width for cell in cells):
        row = [width]
        for length in LENGTH_NAMES:
            cell = by_place.get((width, length))
            row.append("" if cell is None else f"{cell.change_percent:+.0f} % ({cell.jobs:,})")
        rows.append(row)
    return ["processors", *LENGTH_NAMES], rows
