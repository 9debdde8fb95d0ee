"""The pictures: Figure 2 as Gantt charts, Figure 3 as bars, and the break-even as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ejbd.sim.metrics import Outcome
from ejbd.studies import plotting
from ejbd.studies.malleable.breakeven import Point
from ejbd.studies.malleable.logs import LogRuns
from ejbd.studies.malleable.printed import FIGURE_2_PROCESSORS, FIGURE_2_WIDTHS

_BARS = (("wait_s", "wait (s)"), ("run_s", "run (s)"), ("response_s", "response (s)"), ("bounded", "bounded slowdown"))


def schedules(folder: Path, found: Mapping[str, Outcome]) -> list[Path]:
    """Figure 2: the six jobs under each policy. A hatched job runs folded."""
    figure, panels = plotting.pyplot().subplots(1, len(found), figsize=(3.0 * len(found), 2.4), sharey=True)
    for axes, (name, outcome) in zip(panels, found.items(), strict=True):
        for at, width in enumerate(FIGURE_2_WIDTHS):
            start, end = float(outcome.start[at]), float(outcome.end[at])
            held = round(float(outcome.used[at]) / (end - start))
            bottom = _free_row(outcome, at, held)
            axes.broken_barh([(start, end - start)], (bottom, held), facecolor="#d9e6f2", edgecolor="black",
                             hatch="//" if held < width else None)  # fmt: skip
            axes.text((start + end) / 2, bottom + held / 2, f"J{at + 1}", ha="center", va="center")
        axes.set_title({"fcfs": "FCFS", "easy": "EASY", "malleable": "FCFS-malleable"}[name])
        axes.set_ylim(0, FIGURE_2_PROCESSORS)
        axes.set_xlabel("time")
    panels[0].set_ylabel("processors")
    return plotting.save(figure, folder, "figure-2")


def _free_row(outcome: Outcome, at: int, held: int) -> int:
    """The lowest processors that no earlier job of the list holds while this one runs."""
    taken: list[tuple[int, int]] = []
    for other in range(at):
        if outcome.start[other] < outcome.end[at] and outcome.start[at] < outcome.end[other]:
            of = round(float(outcome.used[other] / (outcome.end[other] - outcome.start[other])))
            bottom = _free_row(outcome, other, of)
            taken.append((bottom, bottom + of))
    bottom = 0
    for low, high in sorted(taken):
        if bottom + held <= low:
            break
        bottom = max(bottom, high)
    return bottom


def bars(folder: Path, found: Sequence[LogRuns]) -> list[Path]:
    """Figure 3: wait, run, response and slowdown of each log; the bars of FCFS-malleable are means over the draws."""
    figure, panels = plotting.pyplot().subplots(1, len(_BARS), figsize=(2.6 * len(_BARS), 2.6))
    names = [one.log.name for one in found]
    for axes, (field, title) in zip(panels, _BARS, strict=True):
        before = [float(getattr(one.easy, field)) for one in found]
        plotting.pairs(axes, names, before, [one.mean(field) for one in found], None)
        axes.set_title(title)
    handles, _ = panels[0].get_legend_handles_labels()
    figure.legend(handles, ["EASY", "FCFS-malleable"], loc="outside upper center", ncols=2)
    return plotting.save(figure, folder, "figure-3")


def break_even(folder: Path, points: Sequence[Point]) -> list[Path]:
    """Response and slowdown against EASY over the stretch of a folded job, a line a log."""
    figure, panels = plotting.pyplot().subplots(1, 2, figsize=(7.0, 2.8))
    kinds: tuple[tuple[str, str], ...] = (("response", "mean response"), ("slowdown", "bounded slowdown"))
    for axes, (field, title) in zip(panels, kinds, strict=True):
        _lines(axes, points, field)
        axes.set_title(f"{title} against EASY (%)")
        axes.set_xlabel("stretch of a folded job")
    plotting.legend_above(figure, panels[0])
    return plotting.save(figure, folder, "break-even")


def _lines(axes: Any, points: Sequence[Point], field: str) -> None:
    for log, look in zip(dict.fromkeys(point.log for point in points), plotting.looks(), strict=False):
        line = [(point.stretch, getattr(point, field)) for point in points if point.log == log]
        axes.plot([x for x, _ in line], [y for _, y in line], label=log, **look)
    axes.axhline(0.0, color="black", linewidth=0.6)
