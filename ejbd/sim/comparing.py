"""Several settings on one log, each beside the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ejbd.sim.fairness import beside
from ejbd.sim.grid import grid
from ejbd.sim.metrics import Outcome, change, finite, paper_trim
from ejbd.sim.progress import part
from ejbd.sim.settings import Setting, Source, play
from ejbd.sim.workload import Workload


def play_all(source: Source, settings: Sequence[tuple[str, Setting]]) -> tuple[Workload, list[dict[str, Any]]]:
    """The workload, and the report of every setting (by its name) with how it differs from the first one.

    `turnaround_change_percent` is of the means as each report has them. `beside_first` is of the jobs that count in
    both; null where jobs arrive at other times than in the first one, which leaves nothing to compare job by job.
    """
    first: Outcome | None = None
    reports: list[dict[str, Any]] = []
    for number, (name, setting) in enumerate(settings):
        with part(name, number / len(settings), (number + 1) / len(settings)):
            workload, outcome, report = play(source, setting, again=len(settings) - number)
        report = {"setting": name, **report}
        if first is None:
            first = outcome
        else:
            old, new = reports[0]["mean_turnaround_s"], report["mean_turnaround_s"]
            report["turnaround_change_percent"] = None if None in (old, new) else finite(change(old, new))
            report["beside_first"] = None
            if setting.arrivals == settings[0][1].arrivals:
                kept = np.full(len(workload), True)
                for trimmed, of in ((settings[0][1].trimmed, first), (setting.trimmed, outcome)):
                    kept &= paper_trim(workload.jobs, of) if trimmed else True
                cells = grid(workload.jobs, first, outcome, kept)
                report["beside_first"] = {
                    **beside(workload.jobs, first, outcome, kept).to_json(),
                    "grid": [cell.to_json() for cell in cells],
                }
        reports.append(report)
    return workload, reports
