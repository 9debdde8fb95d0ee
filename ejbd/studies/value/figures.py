"""The plots of docs/value.md, in the looks of :mod:`ejbd.studies.plotting`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.sim.grid import LENGTH_NAMES, width_names
from ejbd.studies import plotting
from ejbd.studies.value.worth import Value

_FULL = 60.0  # per cent at which a cell's colour is full


def gains(folder: Path, values: Sequence[Value]) -> list[Path]:
    """Mean turnaround of all jobs, elastic ones and others, without and with EJB; a panel for each log."""
    figure, panels = _panels(values, 2.6, 2.7)
    for axes, value in zip(panels, values, strict=True):
        groups = list(value.groups.values())
        before, after = [group.before_s / 3600 for group in groups], [group.after_s / 3600 for group in groups]
        plotting.pairs(axes, [group.name for group in groups], before, after, None)
        axes.set_title(value.name[:24])
    panels[0].set_ylabel("mean turnaround time (h)")
    plotting.legend_above(figure, panels[0])
    return plotting.save(figure, folder, "gains")


def by_width_and_length(folder: Path, values: Sequence[Value]) -> list[Path]:
    """The grid: the change of the mean turnaround by width and length; blue gains, red loses."""
    figure, panels = _panels(values, 3.3, 3.0)
    image: Any = None
    for axes, value in zip(panels, values, strict=True):
        widths = width_names(int(value.workload.jobs.processors.max(initial=0)))
        cells = np.full((len(widths), len(LENGTH_NAMES)), np.nan)
        for cell in value.cells:
            place = widths.index(cell.width), LENGTH_NAMES.index(cell.length)
            cells[place] = cell.change_percent
            axes.text(place[1], place[0], f"{cell.change_percent:+.0f}", ha="center", va="center", fontsize=6.5)
        image = axes.imshow(cells, cmap="RdBu_r", vmin=-_FULL, vmax=_FULL, aspect="auto", origin="lower")
        lengths, wide = ([name.replace(" and more", "+") for name in names] for names in (LENGTH_NAMES, widths))
        axes.set_xticks(range(len(lengths)), lengths, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(wide)), wide)
        axes.set_title(value.name[:24])
        axes.grid(visible=False)
    panels[0].set_ylabel("processors of the job")
    figure.colorbar(image, ax=list(panels), label="change of mean turnaround (%)", shrink=0.8)
    return plotting.save(figure, folder, "by-width-and-length")


def when_it_stops(folder: Path, values: Sequence[Value]) -> list[Path]:
    """The change of the mean turnaround of all jobs over Delta, a line for each lambda."""
    figure, panels = _panels(values, 2.6, 2.7)
    for axes, value in zip(panels, values, strict=True):
        for lambda_s, look in zip(sorted({at_s for _, at_s in value.points}), plotting.looks(), strict=False):
            line = sorted((delta, changes[0]) for (delta, at_s), changes in value.points.items() if at_s == lambda_s)
            axes.plot([delta for delta, _ in line], [y for _, y in line], label=f"lambda {lambda_s:g} s", **look)
        axes.axhline(0.0, color="black", linewidth=0.6)
        axes.set_xlabel("Delta")
        axes.set_title(value.name[:24])
    panels[0].set_ylabel("change of mean turnaround (%)")
    plotting.legend_above(figure, panels[0])
    return plotting.save(figure, folder, "when-it-stops")


def by_user(folder: Path, values: Sequence[Value]) -> list[Path]:
    """Users from the one that gains most to the one that loses most."""
    figure, panels = _panels(values, 2.6, 2.5)
    for axes, value in zip(panels, values, strict=True):
        changes = np.sort([user.change_percent for user in value.users])
        axes.plot(100 * (np.arange(changes.size) + 0.5) / max(1, changes.size), changes, color=plotting.AFTER)
        axes.axhline(0.0, color="black", linewidth=0.6)
        axes.set_ylim(-100, 100)
        axes.set_xlabel("users (%)")
        axes.set_title(value.name[:24])
    panels[0].set_ylabel("change of mean turnaround (%)")
    return plotting.save(figure, folder, "by-user")


def _panels(values: Sequence[Value], width: float, height: float) -> tuple[Any, Any]:
    columns = min(len(values), 4)
    rows = -(-len(values) // columns)
    figure, axes = plotting.pyplot().subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    for unused in axes.ravel()[len(values) :]:
        unused.set_visible(False)
    return figure, axes.ravel()[: len(values)]
