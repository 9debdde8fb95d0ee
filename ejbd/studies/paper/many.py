"""Many elastic jobs at once: Tables 5 and 6, Figures 10 and 11 of Liu & Weissman (SC'15), and which jobs are later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.sim.fairness import Shift, beside, max_bounded_slowdown, priority_inversions
from ejbd.sim.grid import grid, table_of
from ejbd.sim.metrics import Means, change, confidence_95, idle_while_queued, means
from ejbd.sim.world import FloatArray
from ejbd.studies.paper import figures, printed
from ejbd.studies.paper.report import MIN_ELASTIC, RUNS, Folder, TraceRuns, both, kinds, spread
from ejbd.studies.paper.runs import PaperRuns


def tables_5_and_6(folder: Folder, found: Sequence[TraceRuns], play: PaperRuns) -> None:
    rows, idle = [], []
    for trace in found:
        jobs = trace.workload.jobs
        changes: dict[str, list[float]] = {"elastic": [], "non-elastic": [], "all": [], "idle": []}
        for lambda_s in RUNS:
            parameters = BundlingParameters(lambda_s=float(lambda_s))
            ejb = play.ejb(f"Table 5, {trace.name}, lambda {lambda_s}", trace.workload, MIN_ELASTIC, parameters)
            kept, elastic = both(trace, ejb)
            trace.beside_easy.append(beside(jobs, trace.easy, ejb, kept))
            for kind, chosen in kinds(kept, elastic).items():
                old, new = means(jobs, trace.easy, chosen), means(jobs, ejb, chosen)
                changes[kind].append(change(old.mean_turnaround_s, new.mean_turnaround_s))
                trace.slowdowns.setdefault(kind, []).append(new.mean_bounded_slowdown)
            changes["idle"].append(change(idle_while_queued(trace.easy), idle_while_queued(ejb)))
        kept, elastic = both(trace, trace.ejb)
        for kind, chosen in kinds(kept, elastic).items():
            p = printed.TABLE_5[trace.name, kind]
            rows.append(_row_5(trace, kind, chosen, p, changes[kind]))
        q = printed.TABLE_6[trace.name]
        before, after = idle_while_queued(trace.easy), idle_while_queued(trace.ejb)
        total = trace.workload.processors
        idle.append([trace.name, f"{q[0]} / {before:.1f}", f"{100 * before / total:.1f}", f"{q[1]} / {after:.1f}",
                     f"{100 * after / total:.1f}", f"{q[2]:+.1f} / {spread(changes['idle'])}"])  # fmt: skip
    head = ["log", "jobs", "count", "turnaround before", "after", "change %", "95 % interval", "wait before", "after",
            "run before", "after"]  # fmt: skip
    runs = f"mean and standard deviation over {len(RUNS)} runs, lambda {RUNS[0]} to {RUNS[-1]} s"
    note = f"Paper / ours; seconds. Figures at lambda 120 s, changes as {runs}, since the system is chaotic."
    folder.table("table-5", "Table 5: all jobs of 8 processors and more elastic", head, rows, note)
    head = ["log", "idle before", "%", "idle after", "%", "change %"]
    folder.table("table-6", "Table 6: fragmentation", head, idle, f"Paper / ours; changes as {runs}.")


def _row_5(trace: TraceRuns, kind: str, chosen: Any, printed: Sequence[Any], changes: Sequence[float]) -> list[str]:
    jobs = trace.workload.jobs
    old: Means = means(jobs, trace.easy, chosen)
    new: Means = means(jobs, trace.ejb, chosen)
    low, high = confidence_95((trace.ejb.end - trace.easy.end)[chosen])

    def beside(value: Any, ours: float) -> str:
        return f"{'-' if value is None else format(value, ',')} / {ours:,.0f}"

    return [
        trace.name,
        kind,
        beside(printed[0], old.jobs),
        beside(printed[1], old.mean_turnaround_s),
        beside(printed[2], new.mean_turnaround_s),
        f"{printed[3]:+.1f} / {spread(changes)}",
        f"{low:,.0f} to {high:,.0f}",
        beside(printed[4], old.mean_wait_s),
        beside(printed[5], new.mean_wait_s),
        beside(printed[7], old.mean_run_s),
        beside(printed[8], new.mean_run_s),
    ]


def later_and_earlier(folder: Folder, found: Sequence[TraceRuns]) -> None:
    rows = []
    shifts: dict[str, tuple[FloatArray, FloatArray]] = {}
    for trace in found:
        kept, elastic = both(trace, trace.ejb)
        starts = (trace.ejb.start - trace.easy.start)[kept & ~elastic]
        shifts[trace.name] = starts, (trace.ejb.end - trace.easy.end)[kept & elastic]
        at_120 = beside(trace.workload.jobs, trace.easy, trace.ejb, kept)
        others = [run.others_start for run in trace.beside_easy]
        ends = [run.elastic_end for run in trace.beside_easy]
        rows.append([trace.name, "non-elastic: start", *_shift_row(at_120.others_start, others)])
        rows.append([trace.name, "elastic: end", *_shift_row(at_120.elastic_end, ends)])
    head = ["log", "what", "jobs", "later", "% of the jobs", "by (mean)", "by (95 %)", "earlier", "% of the jobs",
            "by (mean)", "by (95 %)"]  # fmt: skip
    note = (
        "Against EASY, job by job; seconds. Not in the paper. No start that is planned is delayed by a decision. But "
        "processors that an elastic job took may be missed by a job that arrives later. And every early end or start "
        f"moves others. Figures at lambda 120 s, shares as mean and standard deviation over {len(RUNS)} runs. A job "
        "of 8 processors and more that started at once is among the non-elastic ones, as in Table 5; it is never later."
    )
    folder.table("later", "Later than without EJB, all jobs of 8 processors and more elastic", head, rows, note)
    folder.figure("Later and earlier than without EJB", figures.later_and_earlier(folder.path, shifts))


def _shift_row(at_120: Shift, runs: Sequence[Shift]) -> list[str]:
    row = [f"{at_120.jobs:,}"]
    sides = (
        (at_120.later, [run.later_percent for run in runs]),
        (at_120.earlier, [run.earlier_percent for run in runs]),
    )
    for side, percents in sides:
        share = f"{np.mean(percents):.1f} ± {np.std(percents, ddof=1):.1f}"
        row += [f"{side.jobs:,}", share, f"{side.mean_s:,.0f}", f"{side.p95_s:,.0f}"]
    return row


def width_by_length(folder: Folder, found: Sequence[TraceRuns]) -> None:
    head: list[str] = []
    rows = []
    for trace in found:
        kept, _ = both(trace, trace.ejb)
        columns, cells = table_of(grid(trace.workload.jobs, trace.easy, trace.ejb, kept))
        head = ["log", *columns]
        rows += [[trace.name, *row] for row in cells]
    note = (
        "The change of the mean turnaround by a job's processors and its run time, and how many jobs that is; lambda "
        "120 s. Not in the paper, which has the wait over the size alone (Figure 11)."
    )
    folder.table("width-by-length", "Width by length, all jobs of 8 processors and more elastic", head, rows, note)


def figures_10_and_11(folder: Folder, found: Sequence[TraceRuns]) -> None:
    panels: dict[str, dict[str, tuple[float, float, float]]] = {}
    waits = {}
    rows, orders = [], []
    for trace in found:
        jobs = trace.workload.jobs
        kept, elastic = both(trace, trace.ejb)
        panels[trace.name] = {}
        for kind, chosen in kinds(kept, elastic).items():
            old = means(jobs, trace.easy, chosen).mean_bounded_slowdown
            new = means(jobs, trace.ejb, chosen).mean_bounded_slowdown
            panels[trace.name][kind] = (old, new, float(np.std(trace.slowdowns[kind], ddof=1)))
            most = [f"{max_bounded_slowdown(jobs, of, chosen):,.0f}" for of in (trace.easy, trace.ejb)]
            rows.append([trace.name, kind, f"{old:.1f}", f"{new:.1f}", f"{change(old, new):+.1f}", *most])
        size = jobs.processors[kept].astype(np.float64)
        waits[trace.name] = (size, (trace.easy.start - jobs.submit)[kept], (trace.ejb.start - jobs.submit)[kept])
        counts = [priority_inversions(jobs.submit[kept], of.start[kept]) for of in (trace.easy, trace.ejb)]
        changes = [run.inversions_percent for run in trace.beside_easy]
        orders.append([trace.name, *(f"{count:,}" for count in counts), spread(changes)])
    title = f"Figure 10: bounded slowdown (EJB: error bars are a standard deviation over {len(RUNS)} runs)"
    folder.figure(title, figures.slowdown_bars(folder.path, panels))
    head = ["log", "jobs", "EASY", "EJB", "change %", "maximum: EASY", "EJB"]
    folder.table("figure-10", "Figure 10 in figures", head, rows)
    paths, slopes = figures.fairness(folder.path, waits)
    folder.figure("Figure 11: waiting time over size", paths)
    flat = [[name, f"{a:.1f}", f"{b:.1f}"] for name, (a, b) in slopes.items()]
    folder.table("figure-11", "Figure 11 in figures", ["log", "EASY, s a processor", "EJB, s a processor"], flat)
    note = "Pairs of jobs submitted in one order and started in the other; section 6.4 has about -20 %."
    folder.table("inversions", "Priority inversions", ["log", "EASY", "EJB", "change %"], orders, note)
