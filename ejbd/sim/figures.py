"""The paper's figures, for print: dashes, markers and hatches beside colour, units on every axis; PNG, SVG and PDF."""

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
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 1.5, 1, 1.5)))
_SHIFTS_S = 60.0 * np.array([0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0])
_ERROR_BARS = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 2}


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
            "figure.constrained_layout.use": True,
            "pdf.fonttype": 42,  # text stays text
        }
    )
    return plt


def _looks() -> list[dict[str, Any]]:
    """Of up to four lines: told apart by colour, dashes and markers, any of which is enough."""
    kinds = zip(_LINES, _DASHES, _MARKS, strict=True)
    return [{"color": colour, "linestyle": dashes, "marker": mark, "ms": 4} for colour, dashes, mark in kinds]


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{name}.png", folder / f"{name}.svg", folder / f"{name}.pdf"]
    figure.savefig(paths[0], dpi=200)
    figure.savefig(paths[1], metadata={"Date": None})
    figure.savefig(paths[2], metadata={"CreationDate": None})
    _plt().close(figure)
    return paths


def _pairs(
    axes: Any, names: Sequence[str], before: Sequence[float], after: Sequence[float], errors: Sequence[float] | None
) -> None:
    """A pair of bars for each name, the change above it, clear of both; `errors`: half of an error bar of each EJB."""
    places = np.arange(len(names))
    axes.bar(places - 0.19, before, 0.36, color=BEFORE, label="EASY")
    axes.bar(places + 0.19, after, 0.36, color=AFTER, hatch="//", edgecolor="white", label="EJB")
    if errors is not None:
        axes.errorbar(places + 0.19, after, yerr=errors, **_ERROR_BARS)
    ends = np.asarray(after) + (0.0 if errors is None else np.nan_to_num(np.asarray(errors)))
    for place, old, new, end in zip(places, before, after, ends, strict=True):
        if old:
            text = f"{100 * (new / old - 1):+.0f} %"
            over = (0, 2)
            axes.annotate(text, (place, max(old, end)), over, textcoords="offset points", ha="center", fontsize=6)
    axes.set_xticks(places, names)
    axes.set_ylim(top=1.08 * axes.get_ylim()[1])
    axes.grid(axis="x", visible=False)


def _legend_above(figure: Any, axes: Any) -> None:
    """One legend for all panels, over them, where nothing is drawn."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))


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
