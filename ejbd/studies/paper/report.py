"""What the paper's tables and figures are made of: the runs of each log, and the folder that they are written to."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.sim.fairness import Beside
from ejbd.sim.metrics import Outcome, paper_trim
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.targets import TargetRuns
from ejbd.sim.workload import Workload

MIN_ELASTIC = 8  # Table 5 takes P >= 8, Tables 3 and 4 P > 8
RUNS = tuple(range(110, 131, 2))  # lambdas around the paper's: many elastic jobs are chaotic, one run says little


@dataclass(slots=True)
class TraceRuns:
    """One log and everything that several tables need of it."""

    name: str
    workload: Workload
    easy: Outcome
    targets: TargetRuns
    ejb: Outcome
    slowdowns: dict[str, list[float]] = field(default_factory=dict)  # of each kind of jobs, over RUNS
    beside_easy: list[Beside] = field(default_factory=list)  # over RUNS


class Folder:
    """Tables and figures as they come into being."""

    def __init__(
        self, path: Path, name: str = "sc15", title: str = "Elastic job bundling, SC'15: the paper's values beside ours"
    ) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.name = path, name
        self.paths: list[Path] = []
        self.text = [f"# {title}\n"]

    def table(self, name: str, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
        write_csv(self.path / f"{name}.csv", head, rows)
        self.paths.append(self.path / f"{name}.csv")
        words = textwrap.fill(note, 120, break_on_hyphens=False) + "\n\n" if note else ""
        self.text.append(f"\n## {title}\n\n{words}{markdown_table(head, rows)}")

    def figure(self, title: str, paths: list[Path]) -> None:
        self.paths += paths
        self.text.append(f"\n## {title}\n\n![{title}]({paths[0].name})\n")

    def close(self) -> list[Path]:
        report = self.path / f"{self.name}.md"
        report.write_text("".join(self.text), encoding="utf-8")
        return [report, *self.paths]


def both(trace: TraceRuns, ejb: Outcome) -> tuple[Any, Any]:
    """Flags of the jobs that count before and after, and of the elastic ones."""
    kept = paper_trim(trace.workload.jobs, trace.easy) & (ejb.end <= trace.workload.jobs.submit.max())
    return kept, ejb.elastic != 0


def kinds(kept: Any, elastic: Any) -> dict[str, Any]:
    return {"elastic": kept & elastic, "non-elastic": kept & ~elastic, "all": kept}


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):+.1f} ± {np.std(values, ddof=1):.1f}"


def number(value: float | None) -> float:
    """As a float, which is none (nan) where a log has no target."""
    return math.nan if value is None else value
