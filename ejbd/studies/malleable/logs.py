"""Tables 2 and 3 and Figure 3: the paper's parts of three logs, under EASY and under FCFS-malleable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.malleable.stretching import Model
from ejbd.sim import progress
from ejbd.sim.malleable import LONG_S, WIDE_LONG, drawn, run_malleable
from ejbd.sim.metrics import change
from ejbd.sim.run import Policy, run
from ejbd.sim.workload import Workload
from ejbd.studies.malleable.printed import PrintedLog
from ejbd.studies.malleable.runs import Figures, asked_for, figures_of, part_of, with_use
from ejbd.studies.malleable.small import parameters

DRAWS = 10
"""Overheads, and processor use that a log does not have, are drawn: one draw says little on a full machine."""


@dataclass(frozen=True, slots=True)
class LogRuns:
    """A part of a log: under EASY, and under FCFS-malleable by the paper's model in so many draws."""

    log: PrintedLog
    workload: Workload
    easy: Figures
    asked: float
    use: float
    use_long: float | None
    draws: tuple[Figures, ...]

    def changes(self, name: str) -> list[float]:
        """Of a figure against EASY, in per cent, one a draw."""
        return [change(getattr(self.easy, name), getattr(one, name)) for one in self.draws]

    def mean(self, name: str) -> float:
        """Of a figure over the draws."""
        return float(np.mean([getattr(one, name) for one in self.draws]))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "processors": self.log.processors,
            "rows": [self.log.after + 1, self.log.last],
            "model": Model.PAPER.value,
            "draws": len(self.draws),
            "easy": self.easy.to_json(),
            "malleable": {name: self.mean(name) for name in Figures.__slots__},
            "mpl_of_draws": [one.mpl for one in self.draws],
            "response_change_percent": self.changes("response_s"),
            "bounded_slowdown_change_percent": self.changes("bounded"),
            "asked_a_processor": self.asked,
        }


def play_log(path: Path, log: PrintedLog, *, draws: int = DRAWS) -> LogRuns:
    """Simulate a part of a log."""
    workload = part_of(path, log)
    outcome = run(workload, Policy.EASY, plain=True)
    found = []
    for draw in range(1, draws + 1):
        of = with_use(parameters(model=Model.PAPER, draw=draw), log)
        with progress.part(f"{log.name}, draw {draw}", (draw - 1) / draws, draw / draws):
            found.append(figures_of(workload, run_malleable(workload, of)))
    use, _ = drawn(workload, with_use(parameters(draw=1), log))
    long = (workload.jobs.processors > WIDE_LONG) & (workload.jobs.run > LONG_S)
    of_long = float(use[long].mean()) if long.any() else None
    easy = figures_of(workload, outcome)
    return LogRuns(log, workload, easy, asked_for(workload, outcome), float(use.mean()), of_long, tuple(found))


def table_2(found: Sequence[LogRuns]) -> tuple[list[str], list[list[Any]]]:
    """Head and rows: the paper's figure, then ours."""
    head = ["log", "processors", "rows", "jobs", "use % (paper)", "use %", "long % (paper)", "long %", "asked (paper)",
            "asked"]  # fmt: skip
    rows = []
    for one in found:
        log = one.log
        long = "-" if one.use_long is None else f"{100 * one.use_long:.0f}"
        rows.append([log.name, log.processors, f"{log.after + 1:,}-{log.last:,}", f"{len(one.workload):,}",
                     f"{100 * log.use:.0f}", f"{100 * one.use:.0f}", f"{100 * log.use_long:.0f}", long,
                     log.asked, f"{one.asked:.1f}"])  # fmt: skip
    return head, rows


def table_3(found: Sequence[LogRuns]) -> tuple[list[str], list[list[Any]]]:
    """Head and rows: mean MPL, the paper's figure, then ours; over the draws the mean, the least and the most."""
    head = ["log", "EASY (paper)", "EASY", "malleable (paper)", "malleable", "least", "most"]
    rows = []
    for one in found:
        mpl = [of.mpl for of in one.draws]
        rows.append([one.log.name, one.log.easy_mpl, f"{one.easy.mpl:.2f}", one.log.malleable_mpl,
                     f"{np.mean(mpl):.2f}", f"{min(mpl):.2f}", f"{max(mpl):.2f}"])  # fmt: skip
    return head, rows


def figure_3(found: Sequence[LogRuns]) -> tuple[list[str], list[list[Any]]]:
    """Head and rows: what the paper has as bars, with how many draws are better than EASY."""
    head = ["log", "policy", "wait, s", "run, s", "response, s", "bounded slowdown", "fragmentation %",
            "response better", "slowdown better"]  # fmt: skip
    rows: list[list[Any]] = []
    for one in found:
        easy = one.easy
        rows.append([one.log.name, "EASY", f"{easy.wait_s:.0f}", f"{easy.run_s:.0f}", f"{easy.response_s:.0f}",
                     f"{easy.bounded:.1f}", f"{100 * easy.fragmentation:.1f}", "", ""])  # fmt: skip
        better = [f"{sum(x < 0 for x in one.changes(name))} of {len(one.draws)}" for name in ("response_s", "bounded")]
        mean = one.mean
        rows.append([one.log.name, "malleable", f"{mean('wait_s'):.0f}", f"{mean('run_s'):.0f}",
                     f"{mean('response_s'):.0f} ({np.mean(one.changes('response_s')):+.0f} %)",
                     f"{mean('bounded'):.1f} ({np.mean(one.changes('bounded')):+.0f} %)",
                     f"{100 * mean('fragmentation'):.1f}", *better])  # fmt: skip
    return head, rows
