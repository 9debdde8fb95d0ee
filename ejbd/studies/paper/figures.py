"""The paper's figures, for print: dashes, markers and hatches beside colour, units on every axis; PNG, SVG and PDF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ejbd.sim.world import FloatArray
from ejbd.studies.plotting import AFTER, BEFORE
from ejbd.studies.plotting import DASHES as _DASHES
from ejbd.studies.plotting import legend_above as _legend_above
from ejbd.studies.plotting import looks as _looks
from ejbd.studies.plotting import pairs as _pairs
from ejbd.studies.plotting import pyplot as _plt
from ejbd.studies.plotting import save as _save

_SHIFTS_S = 60.0 * np.array([0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])


def turnaround_bars(
    folder: Path, before: Mapping[str, float], after: Mapping[str, float], errors: Mapping[str, float]
) -> list[Path]:
    """Figure 7a; `errors`: half of the 95 % interval of the difference. All in seconds."""
    figure, axes = _plt().subplots(figsize=(4.2, 2.8))
    hours = [[values[name] / 3600 for name in before] for values in (before, after, errors)]
    _pairs(axes, list(before), hours[0], hours[1], hours[2])
    axes.set_ylabel("mean turnaround time (h)")
    _legend_above(figure, axes)
    return _save(figure, folder, "figure-7a-turnaround")


def speedup_cdf(folder: Path, speedups: Mapping[str, FloatArray]) -> list[Path]:
    """Figure 7b."""
    figure, axes = _plt().subplots(figsize=(4.2, 2.8))
    for number, ((name, values), look) in enumerate(zip(speedups.items(), _looks(), strict=False)):
        ordered = np.sort(values)
        marks = np.searchsorted(ordered, 10.0 ** (np.arange(0.1, 3.0, 0.4) + 0.1 * number))  # each line at its own
        axes.plot(
            ordered, np.arange(1, ordered.size + 1) / ordered.size, label=name,
            markevery=[int(at) for at in np.unique(marks) if at < ordered.size], **look,
        )  # fmt: skip
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
        for (name, points), look in zip(lines.items(), _looks(), strict=False):
            axes.plot([x for x, _ in points], [y for _, y in points], label=name, **look)
        axes.set_xlabel(label)
        if "O" in label:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    first = np.atleast_1d(all_axes)[0]
    first.set_ylabel("change of mean turnaround (%)")
    _legend_above(figure, first)
    return _save(figure, folder, "figure-8-sensitivity")


def slowdown_bars(folder: Path, panels: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> list[Path]:
    """Figure 10: bounded slowdown of elastic, non-elastic and all jobs of each log: before, after, error of after."""
    figure, all_axes = _plt().subplots(1, len(panels), figsize=(2.6 * len(panels), 2.7))
    for axes, (trace, kinds) in zip(np.atleast_1d(all_axes), panels.items(), strict=True):
        before, after, errors = zip(*kinds.values(), strict=True)
        _pairs(axes, list(kinds), before, after, errors)
        axes.set_title(trace)
        axes.tick_params(axis="x", labelsize=8)
    first = np.atleast_1d(all_axes)[0]
    first.set_ylabel("mean bounded slowdown")
    _legend_above(figure, first)
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
        looks = ((before, BEFORE, _DASHES[1], "EASY"), (after, AFTER, _DASHES[0], "EJB"))
        for waits, colour, dashes, label in looks:
            slope, foot = np.polyfit(sizes, waits, 1)
            found.append(float(slope))
            label = f"{label}: {slope:.0f} s a processor"
            axes.plot(x, (foot + slope * x) / 3600, color=colour, linestyle=dashes, label=label)
        slopes[trace] = (found[0], found[1])
        axes.set_title(trace)
        axes.set_xlabel("processors of the job")
        axes.set_ylim(top=1.3 * axes.get_ylim()[1])  # room for the legend
        axes.legend(fontsize=6.5, loc="upper left", borderaxespad=0.0, handlelength=2.4)
    np.atleast_1d(all_axes)[0].set_ylabel("waiting time (h), regression")
    return _save(figure, folder, "figure-11-fairness"), slopes


def loads(folder: Path, panels: Mapping[str, Sequence[tuple[float, float, float]]]) -> list[Path]:
    """Figure 12: (utilization of EASY, turnaround of EASY, turnaround of EJB) as the arrival rate changes."""
    figure, all_axes = _plt().subplots(1, len(panels), figsize=(2.6 * len(panels), 2.6))
    for axes, (trace, points) in zip(np.atleast_1d(all_axes), panels.items(), strict=True):
        x = [100 * u for u, _, _ in points]
        easy, ejb = [a / 3600 for _, a, _ in points], [b / 3600 for _, _, b in points]
        axes.plot(x, easy, color=BEFORE, linestyle=_DASHES[1], marker="o", ms=4, mfc="white", label="EASY")
        axes.plot(x, ejb, color=AFTER, marker="s", ms=4, label="EJB")
        axes.set_title(trace)
        axes.set_xlabel("utilization under EASY (%)")
        axes.margins(x=0.08)
    first = np.atleast_1d(all_axes)[0]
    first.set_ylabel("mean turnaround time (h)")
    _legend_above(figure, first)
    return _save(figure, folder, "figure-12-utilization")


def later_and_earlier(folder: Path, panels: Mapping[str, tuple[FloatArray, FloatArray]]) -> list[Path]:
    """For each log the differences (s) of the starts of jobs that are not elastic, and of the ends of elastic ones:
    which share of them is later by more than so much, to the right, and which is earlier, to the left."""
    figure, all_axes = _plt().subplots(1, len(panels), figsize=(2.6 * len(panels), 2.6), sharey=True)
    kinds = (("non-elastic: start", BEFORE, _DASHES[1], "o"), ("elastic: end", AFTER, _DASHES[0], "s"))
    for axes, (trace, values) in zip(np.atleast_1d(all_axes), panels.items(), strict=True):
        for differences, (label, colour, dashes, mark) in zip(values, kinds, strict=True):
            look = {"color": colour, "linestyle": dashes, "marker": mark, "ms": 3.5}
            for sign in (-1, 1):
                beyond = np.sort(sign * differences)
                shares = 100 * (beyond.size - np.searchsorted(beyond, _SHIFTS_S, side="right")) / max(1, beyond.size)
                axes.plot(sign * _SHIFTS_S / 60, shares, label=label if sign > 0 else None, **look)
        axes.set_xscale("symlog", linthresh=1.0, linscale=0.4)
        axes.set_xticks([-1000, -10, 0, 10, 1000], ["1000", "10", "0", "10", "1000"])
        axes.axvline(0.0, color="black", linewidth=0.6)
        axes.set_title(trace)
        axes.set_xlabel("earlier | later by more than (min)")
    first = np.atleast_1d(all_axes)[0]
    first.set_ylim(bottom=0.0)
    first.set_ylabel("share of the jobs (%)")
    _legend_above(figure, first)
    return _save(figure, folder, "figure-later")
