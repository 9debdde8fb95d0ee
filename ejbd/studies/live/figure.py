"""The sim-to-real figure: means side by side with the error over them, and every job's turnaround."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.errors import Code, EjbError

LIVE, SIMULATED = "#9a9a9a", "#1b6ca8"
_MEANS = (("mean_wait_s", "wait"), ("mean_run_s", "run"), ("mean_turnaround_s", "turnaround"))


def draw(path: Path, comparisons: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write PATH.png and PATH.svg, a row for each comparison; the paths. Raises EjbError without matplotlib."""
    try:
        import matplotlib
    except ImportError as error:
        raise EjbError(Code.UNSUPPORTED, "figures need matplotlib", hint="pip install 'ejb[sim]'") from error
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "ejb",
        "pdf.fonttype": 42,  # text stays text
    }
    style |= {"axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.2, 2.9 * len(comparisons)), layout="constrained")
        rows = figure.subplots(len(comparisons), 2, squeeze=False)
        for (bars, dots), found in zip(rows, comparisons, strict=True):
            _bars(bars, found)
            _dots(dots, found)
        base = path.with_suffix("") if path.suffix in (".png", ".svg", ".pdf") else path
        paths = [base.with_name(base.name + suffix) for suffix in (".png", ".svg", ".pdf")]
        try:
            figure.savefig(paths[0], dpi=200)
            figure.savefig(paths[1], metadata={"Date": None})
            figure.savefig(paths[2], metadata={"CreationDate": None})
        except OSError as error:
            raise EjbError(Code.INVALID, f"{base} cannot be written: {error.strerror}") from None
    return paths


def _bars(axes: Any, found: Mapping[str, Any]) -> None:
    places = np.arange(len(_MEANS))
    group = found["all"]
    live = [group["live"][key] for key, _ in _MEANS]
    simulated = [group["simulated"][key] for key, _ in _MEANS]
    axes.bar(places - 0.19, live, 0.36, color=LIVE, label="live")
    axes.bar(places + 0.19, simulated, 0.36, color=SIMULATED, hatch="//", edgecolor="white", label="simulated")
    for place, (key, _), top in zip(places, _MEANS, map(max, live, simulated), strict=True):
        error = group["error_percent"][key]
        if error is not None:
            axes.annotate(f"{error:+.1f} %", (place, top), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(places, [name for _, name in _MEANS])
    axes.set_ylabel("mean of all jobs (s)")
    plays = f" in {found['plays']} plays" if found.get("plays", 1) > 1 else ""
    axes.set_title(f"{found['policy'].upper()}: {found['jobs']} jobs{plays}, {found['procs']} processors", fontsize=9)
    axes.margins(y=0.15)
    axes.legend(loc="upper left", fontsize=8)


def _dots(axes: Any, found: Mapping[str, Any]) -> None:
    live = np.array([job["live"][1] - job["submit_s"] for job in found["each"]])
    simulated = np.array([job["simulated"][1] - job["submit_s"] for job in found["each"]])
    most = float(max(live.max(), simulated.max())) * 1.05
    axes.plot([0, most], [0, most], color="#c8c8c8", linewidth=1, zorder=0)
    axes.scatter(live, simulated, s=12, color=SIMULATED, alpha=0.7)
    axes.set_xlabel("turnaround live (s)")
    axes.set_ylabel("simulated (s)")
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
