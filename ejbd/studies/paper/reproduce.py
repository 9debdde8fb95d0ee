"""Every table and figure of Liu & Weissman's evaluation (SC'15, sections 5 and 6), the paper's values beside ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ejbd.core.bundling.parameters import BundlingParameters, Order
from ejbd.sim.metrics import (
    change,
    means,
    paper_trim,
    utilization,
)
from ejbd.sim.settings import Source, load
from ejbd.sim.workload import RowRule, scaled_arrivals
from ejbd.studies.paper import figures, printed
from ejbd.studies.paper.logs import logs_in
from ejbd.studies.paper.many import figures_10_and_11, later_and_earlier, tables_5_and_6, width_by_length
from ejbd.studies.paper.report import MIN_ELASTIC, RUNS, Folder, TraceRuns, both, number, spread
from ejbd.studies.paper.runs import EASY, EJB, TARGETS, PaperRuns
from ejbd.studies.paper.single import DELTA, LAMBDA_S, OMAX, figure_7, figure_8, tables_3_and_4

ARRIVALS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05)

BEYOND: tuple[tuple[str, dict[str, Any]], ...] = (
    ("paper's algorithm", {}),
    ("suspend", {"suspend": True}),
    (
        "suspend, O_max 64, whole slots, act in MIGRATE",
        {"suspend": True, "omax": 64, "whole_slots": True, "act_in_move": True},
    ),
    ("no move in the last 30 min", {"min_left_s": 1800.0}),
    ("no migration at all", {"lambda_s": float("inf")}),
    ("J0 cancelled at the first subjob", {"keep_placeholder": False}),
)
BEYOND_MULTI: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("paper's algorithm", 8, {}),
    ("order", 8, {"order": Order.LEAST_WORK}),
    ("order, suspend", 8, {"order": Order.LEAST_WORK, "suspend": True}),
    ("order, suspend, P >= 1", 1, {"order": Order.LEAST_WORK, "suspend": True}),
    ("order, suspend, P >= 1, O_max 64", 1, {"order": Order.LEAST_WORK, "suspend": True, "omax": 64}),
    (
        "order, suspend, P >= 1, O_max 64, whole slots",
        1,
        {"order": Order.LEAST_WORK, "suspend": True, "omax": 64, "whole_slots": True},
    ),
)


def reproduce_sc15(traces: Path, out: Path, *, limit: int | None = None) -> list[Path]:
    """Make all of it in `out`; the files made, the report first. `limit`: only the first rows of each log.

    How far it is, is told to what listens (`ejbd.sim.progress`). Raises EjbError where a log is not in the folder.
    """
    begin = time.perf_counter()
    paths = {known.name: path for known, path in logs_in(traces, every=True)}
    folder = Folder(out)
    sources = {known.name: Source(paths[known.name], known.processors, RowRule.PYSS, limit) for known in printed.TRACES}
    play = PaperRuns(_cost() * sum(len(load(source)) for source in sources.values()))
    found = []
    for name, source in sources.items():
        workload = load(source)
        easy = play.easy(name, workload)
        ejb = play.ejb(name, workload, MIN_ELASTIC)
        found.append(TraceRuns(name, workload, easy, play.targets(name, workload, easy), ejb))
    _table_2(folder, found)
    tables_3_and_4(folder, found)
    figure_7(folder, found)
    figure_8(folder, found, play)
    tables_5_and_6(folder, found, play)
    later_and_earlier(folder, found)
    width_by_length(folder, found)
    figures_10_and_11(folder, found)
    _figure_12(folder, found, play)
    _beyond(folder, found, play)
    folder.text.append(f"\nMade in {time.perf_counter() - begin:.0f} s.\n")
    return folder.close()


def _cost() -> float:
    """Of all simulations of a log, for each of its jobs."""
    targets = 1 + len(OMAX) + len(LAMBDA_S) + len(DELTA) + len(BEYOND)
    ejb = 1 + len(RUNS) + len(ARRIVALS) + len(BEYOND_MULTI) * len(RUNS)
    return TARGETS * targets + EJB * ejb + EASY * (1 + len(ARRIVALS))


def _table_2(folder: Folder, found: Sequence[TraceRuns]) -> None:
    rows = []
    for trace, known in zip(found, printed.TRACES, strict=True):
        used = 100 * utilization(trace.workload.jobs, trace.easy, trace.workload.processors)
        rows.append([trace.name, known.processors, f"{known.jobs:,}", f"{len(trace.workload):,}", known.duration,
                     f"{known.utilization:.1f}", f"{used:.1f}"])  # fmt: skip
    head = ["log", "processors", "jobs (paper)", "jobs", "duration", "utilization % (paper)", "under EASY %"]
    folder.table("table-2", "Table 2: the logs", head, rows)


def _figure_12(folder: Folder, found: Sequence[TraceRuns], play: PaperRuns) -> None:
    panels: dict[str, list[tuple[float, float, float]]] = {}
    rows = []
    for trace in found:
        panels[trace.name] = []
        for factor in ARRIVALS:
            workload = scaled_arrivals(trace.workload, factor)
            what = f"Figure 12, {trace.name}, arrivals {factor:g}"
            easy, ejb = play.easy(what, workload), play.ejb(what, workload, MIN_ELASTIC)
            kept = paper_trim(workload.jobs, easy) & (ejb.end <= workload.jobs.submit.max())
            used = utilization(workload.jobs, easy, workload.processors)
            old, new = means(workload.jobs, easy, kept), means(workload.jobs, ejb, kept)
            panels[trace.name].append((used, old.mean_turnaround_s, new.mean_turnaround_s))
            rows.append([trace.name, f"{factor:g}", f"{100 * used:.1f}", f"{old.mean_turnaround_s:.0f}",
                         f"{new.mean_turnaround_s:.0f}",
                         f"{change(old.mean_turnaround_s, new.mean_turnaround_s):+.1f}"])  # fmt: skip
    folder.figure("Figure 12: utilization", figures.loads(folder.path, panels))
    head = ["log", "arrivals", "utilization %", "EASY, s", "EJB, s", "change %"]
    folder.table("figure-12", "Figure 12 in figures", head, rows)


def _beyond(folder: Folder, found: Sequence[TraceRuns], play: PaperRuns) -> None:
    rows = []
    for name, changes in BEYOND:
        row = ["one elastic job", name]
        for trace in found:
            of_row = dict(changes)
            keep = bool(of_row.pop("keep_placeholder", True))
            parameters = replace(BundlingParameters(), **of_row)
            what = f"beyond the paper, {trace.name}, {name}"
            s = play.targets(what, trace.workload, trace.easy, parameters=parameters, keep_placeholder=keep).summary()
            row.append(f"{number(s['turnaround_change_percent']):+.1f} (overhead {s['overhead_percent']:.0f})")
        rows.append(row)
    for name, narrowest, changes in BEYOND_MULTI:
        row = ["all elastic", name]
        for trace in found:
            values = []
            for lambda_s in RUNS:
                parameters = replace(BundlingParameters(), lambda_s=float(lambda_s), **changes)
                what = f"beyond the paper, {trace.name}, {name}, lambda {lambda_s}"
                ejb = play.ejb(what, trace.workload, narrowest, parameters)
                kept, _ = both(trace, ejb)
                old, new = means(trace.workload.jobs, trace.easy, kept), means(trace.workload.jobs, ejb, kept)
                values.append(change(old.mean_turnaround_s, new.mean_turnaround_s))
            row.append(spread(values))
        rows.append(row)
    head = ["", "", *(trace.name for trace in found)]
    note = f"Change of the mean turnaround of all jobs in question, %; all elastic: over {len(RUNS)} runs."
    folder.table("beyond", "Beyond the paper", head, rows, note)
