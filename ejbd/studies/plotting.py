"""The looks of all figures: for print, with dashes, markers and hatches beside colour; PNG, SVG and PDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.errors import Code, EjbError

BEFORE, AFTER = "#9a9a9a", "#1b6ca8"
_LINES = ("#1b6ca8", "#c0504d", "#4f8a3d", "#7a5195")
_MARKS = ("o", "s", "^", "D")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 1.5, 1, 1.5)))
_ERROR_BARS = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 2}


def pyplot() -> Any:
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


def looks() -> list[dict[str, Any]]:
    """Of up to four lines: told apart by colour, dashes and markers, any of which is enough."""
    kinds = zip(_LINES, DASHES, _MARKS, strict=True)
    return [{"color": colour, "linestyle": dashes, "marker": mark, "ms": 4} for colour, dashes, mark in kinds]


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{name}.png", folder / f"{name}.svg", folder / f"{name}.pdf"]
    figure.savefig(paths[0], dpi=200)
    figure.savefig(paths[1], metadata={"Date": None})
    figure.savefig(paths[2], metadata={"CreationDate": None})
    pyplot().close(figure)
    return paths


def pairs(
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


def legend_above(figure: Any, axes: Any) -> None:
    """One legend for all panels, over them, where nothing is drawn."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
