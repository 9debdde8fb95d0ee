"""`ejb sim run LOG --evolving-share S`: evolving jobs beside rigid ones and beside bundling, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ejbd.cli.options import output
from ejbd.cli.output import json_text
from ejbd.cli.sim.options import tell_rows, writable
from ejbd.cli.sim.progress import shown

if TYPE_CHECKING:
    from ejbd.sim.settings import Setting, Source

_HEAD = ["WAY", "ALL", "OTHERS", "EVOLVING", "SLOWDOWN", "USED", "AGAINST"]


def tell_worth(source: Source, setting: Setting, share: float, json_file: str | None) -> None:
    """Play, and print mean turnarounds in hours, each with its change; `json_file`: all figures go there, too."""
    from ejbd.studies.evolving.worth import worth

    with shown():
        workload, report = worth(source, setting, share)
    tell_rows(workload)
    if json_file is not None:
        with writable(json_file) as out:
            out.write(json_text(report, indent=None if json_file == "-" else 2) + "\n")
    if json_file == "-":
        return
    told = output(False, False)
    told.line(f"{report['evolving_jobs']} of {len(workload)} jobs evolve; mean turnarounds in hours")
    told.table(_HEAD, [_row(way) for way in report["ways"]], frozenset(range(1, 6)))
    peak, needed = report["their_peak_processor_seconds"], report["evolving_processor_seconds"]
    if needed:
        told.line(f"their peaks held throughout are {100 * (peak / needed - 1):.0f} % more than they need")


def _row(way: dict[str, Any]) -> list[str]:
    cells = []
    for name in ("all", "others", "evolving"):
        mean, change = way[name]["mean_turnaround_s"], way[name]["turnaround_change_percent"]
        changed = "" if change is None or way["way"] == way["against"] else f" {change:+.1f} %"
        cells.append("" if mean is None else f"{mean / 3600:.2f}{changed}")
    slowdown = way["all"]["mean_bounded_slowdown"]
    used = f"{100 * way['utilization']:.1f} %"
    return [way["way"], *cells, "" if slowdown is None else f"{slowdown:.1f}", used, way["against"]]
