"""The paper's figures, for print: greys and hatches beside colour, every axis with its unit, PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.world import FloatArray

BEFORE, AFTER = "#9a9a9a", "#1b6ca8"
_LINES = ("#1b6ca8", "#c0504d", "#4f8a3d", "#7a5195")
_MARKS = ("o", "s", "^", "D")


def _plt() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise EjbError(Code.UNSUPPORTED, "figures need matplotlib", hint="pip install 'ejb[sim]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "legend.frameon": False,
            "svg.hashsalt": "ejb",
            "savefig.bbox": "tight",
        }
    )
    return plt


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], dpi=200)
    figure.savefig(paths[1], metadata={"Date": None})
    _plt().close(figure)
    return paths


def _pairs(axes: Any, names: Sequence[str], before: Sequence[float], after: Sequence[float]) -> None:
    places = np.arange(len(names))
    axes.bar(places - 0.19, before, 0.36, color=BEFORE, label="EASY")
    bars = axes.bar(places + 0.19, after, 0.36, color=AFTER, hatch="//", edgecolor="white", label="EJB")
    for bar, old, new in zip(bars, before, after, strict=True):
        if old:
            text = f"{100 * (new / old - 1):+.0f} %"
            axes.annotate(text, (bar.get_x() + 0.18, new), ha="center", va="bottom", fontsize=6)
    axes.set_xticks(places, names)
    axes.grid(axis="x", visible=False)


def turnaround_bars(folder: Path, before: Mapping[str, float], after: Mapping[str, float]) -> list[Path]:
    """Figure 7a."""
    figure, axes = _plt().subplots(figsize=(4.2, 2.8))
    _pairs(axes, list(before), [v / 3600 for v in before.values()], [after[k] / 3600 for k in before])
    axes.set_ylabel("mean turnaround time (h)")
    axes.legend()
    return _save(figure, folder, "figure-7a-turnaround")


def speedup_cdf(folder: Path, speedups: Mapping[str, FloatArray]) -> list[Path]:
    """Figure 7b."""
    figure, axes = _plt().subplots(figsize=(4.2, 2.8))
    for (name, values), colour in zip(speedups.items(), _LINES, strict=False):
        ordered = np.sort(values)
        axes.plot(ordered, np.arange(1, ordered.size + 1) / ordered.size, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_xlim(0.3, 1000)
    axes.axvline(1.0, color="black", linewidth=0.6)
    axes.set_xlabel("speedup of the turnaround time")
    axes.set_ylabel("share of elastic jobs")
    axes.legend()
    return _save(figure, folder, "figure-7b-speedup-cdf")


def sensitivity(folder: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> list[Path]:
    """Figure 8: a panel for each parameter, a line for each log."""
    figure, all_axes = _plt().subplots(1, len(panels), figsize=(3.1 * len(panels), 2.7), sharey=True)
    for axes, (label, lines) in zip(np.atleast_1d(all_axes), panels.items(), strict=True):
        for (name, points), colour, mark in zip(lines.items(), _LINES, _MARKS, strict=False):
            axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=mark, ms=4, label=name)
        axes.set_xlabel(label)
        if "O" in label:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    first = np.atleast_1d(all_axes)[0]
    first.set_ylabel("change of mean turnaround (%)")
    first.legend()
    return _save(figure, folder, "figure-8-sensitivity")


def slowdown_bars(folder: Path, panels: Mapping[str, Mapping[str, tuple[float, float]]]) -> list[Path]:
    """Figure 10: bounded slowdown of elastic, non-elastic and all jobs of each log."""
    figure, all_axes = _plt().subplots(1, len(panels), figsize=(2.6 * len(panels), 2.7))
    for axes, (trace, kinds) in zip(np.atleast_1d(all_axes), panels.items(), strict=True):
        _pairs(axes, list(kinds), [a for a, _ in kinds.values()], [b for _, b in kinds.values()])
        axes.set_title(trace)
        axes.tick_params(axis="x", labelrotation=20)
    first = np.atleast_1d(all_axes)[0]
    first.set_ylabel("mean bounded slowdown")
    first.legend()
    return _save(figure, folder, "figure-10-slowdown")


def fairness(
    folder: Path, panels: Mapping[str, tuple[FloatArray, FloatArray, FloatArray]]
) -> tuple[list[Path], dict[str, tuple[float, float]]]:
    """Figure 11: regression of the wait over the job's size, (sizes, waits before, waits after); the slopes as well."""
    figure, all_axes = _plt().subplots(1, len(panels), figsize=(2.6 * len(panels), 2.5))
    slopes: dict[str, tuple[float, float]] = {}
    for axes, (trace, (sizes, before, after)) in zip(np.atleast_1d(all_axes), panels.items(), strict=True):
        x = np.array([0.0, float(sizes.max())])
        found = []
        for waits, colour, label in ((before, BEFORE, "EASY"), (after, AFTER, "EJB")):
            slope, foot = np.polyfit(sizes, waits, 1)
            found.append(float(slope))
            axes.plot(x, (foot + slope * x) / 3600, color=colour, label=f"{label}: {slope:.0f} s a processor")
        slopes[trace] = (found[0], found[1])
        axes.set_title(trace)
        axes.set_xlabel("processors of the job")
        axes.set_ylim(top=1.2 * axes.get_ylim()[1])  # room for the legend
        axes.legend(fontsize=7, loc="upper left", borderaxespad=0.0)
    np.atleast_1d(all_axes)[0].set_ylabel("waiting time (h), regression")
    return _save(figure, folder, "figure-11-fairness"), slopes


def loads(folder: Path, panels: Mapping[str, Sequence[tuple[float, float, float]]]) -> list[Path]:
    """Figure 12: (utilization of EASY, turnaround of EASY, turnaround of EJB) as the arrival rate changes."""
    figure, all_axes = _plt().subplots(1, len(panels), figsize=(2.6 * len(panels), 2.6))
    for axes, (trace, points) in zip(np.atleast_1d(all_axes), panels.items(), strict=True):
        x = [100 * u for u, _, _ in points]
        axes.plot(x, [a / 3600 for _, a, _ in points], color=BEFORE, marker="o", ms=4, label="EASY")
        axes.plot(x, [b / 3600 for _, _, b in points], color=AFTER, marker="s", ms=4, label="EJB")
        axes.set_title(trace)
        axes.set_xlabel("utilization under EASY (%)")
        axes.margins(x=0.08)
    first = np.atleast_1d(all_axes)[0]
    first.set_ylabel("mean turnaround time (h)")
    first.legend()
    return _save(figure, folder, "figure-12-utilization")
