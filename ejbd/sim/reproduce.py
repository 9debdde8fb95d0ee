"""Every table and figure of Liu & Weissman's evaluation (SC'15, sections 5 and 6), the paper's values beside ours."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.bundling.plan import BundlingParameters
from ejbd.errors import Code, EjbError
from ejbd.sim import figures, paper
from ejbd.sim.metrics import (
    Means,
    Outcome,
    change,
    confidence_95,
    idle_while_queued,
    means,
    paper_trim,
    utilization,
)
from ejbd.sim.paper_runs import EASY, EJB, TARGETS, PaperRuns
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.settings import Source, load
from ejbd.sim.targets import TargetRuns
from ejbd.sim.workload import RowRule, Workload, scaled_arrivals

MIN_ELASTIC = 8  # Table 5 takes P >= 8, Tables 3 and 4 P > 8
OMAX = (2, 4, 8, 16, 32, 64)
LAMBDA_S = (60, 120, 240, 360, 480, 600)
DELTA = (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
ARRIVALS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05)
RUNS = tuple(range(110, 131, 2))  # lambdas around the paper's: many elastic jobs are chaotic, one run says little

BEYOND: tuple[tuple[str, dict[str, Any]], ...] = (
    ("paper's algorithm", {}),
    ("suspend", {"suspend": True}),
    (
        "suspend, O_max 64, whole slots, act in MIGRATE",
        {"suspend": True, "omax": 64, "whole_slots": True, "act_in_migration": True},
    ),
    ("no move in the last 30 min", {"min_left_s": 1800.0}),
    ("no migration at all", {"lambda_s": float("inf")}),
    ("J0 cancelled at the first subjob", {"keep_placeholder": False}),
)
BEYOND_MULTI: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("paper's algorithm", 8, {}),
    ("order", 8, {"least_work_first": True}),
    ("order, suspend", 8, {"least_work_first": True, "suspend": True}),
    ("order, suspend, P >= 1", 1, {"least_work_first": True, "suspend": True}),
    ("order, suspend, P >= 1, O_max 64", 1, {"least_work_first": True, "suspend": True, "omax": 64}),
    (
        "order, suspend, P >= 1, O_max 64, whole slots",
        1,
        {"least_work_first": True, "suspend": True, "omax": 64, "whole_slots": True},
    ),
)


@dataclass(slots=True)
class _Trace:
    """One log and everything that several tables need of it."""

    name: str
    workload: Workload
    easy: Outcome
    targets: TargetRuns
    ejb: Outcome
    slowdowns: dict[str, list[float]] = field(default_factory=dict)  # of each kind of jobs, over RUNS


class _Folder:
    """Tables and figures as they come into being."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.paths: list[Path] = []
        self.text = ["# Elastic job bundling, SC'15: the paper's values beside ours\n"]

    def table(self, name: str, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
        write_csv(self.path / f"{name}.csv", head, rows)
        self.paths.append(self.path / f"{name}.csv")
        self.text.append(f"\n## {title}\n\n{note + chr(10) + chr(10) if note else ''}{markdown_table(head, rows)}")

    def figure(self, title: str, paths: list[Path]) -> None:
        self.paths += paths
        self.text.append(f"\n## {title}\n\n![{title}]({paths[0].name})\n")

    def close(self) -> list[Path]:
        report = self.path / "sc15.md"
        report.write_text("".join(self.text), encoding="utf-8")
        return [report, *self.paths]


def reproduce_sc15(traces: Path, out: Path, *, limit: int | None = None) -> list[Path]:
    """Make all of it in `out`; the files made, the report first. `limit`: only the first rows of each log.

    How far it is, is told to who listens (`ejbd.sim.progress`). Raises EjbError where a log is not in the folder.
    """
    begin = time.perf_counter()
    paths = {known.name: _log(traces, known.file) for known in paper.TRACES}
    folder = _Folder(out)
    sources = {known.name: Source(paths[known.name], known.processors, RowRule.PYSS, limit) for known in paper.TRACES}
    play = PaperRuns(_cost() * sum(len(load(source)) for source in sources.values()))
    found = []
    for name, source in sources.items():
        workload = load(source)
        easy = play.easy(name, workload)
        ejb = play.ejb(name, workload, MIN_ELASTIC)
        found.append(_Trace(name, workload, easy, play.targets(name, workload, easy), ejb))
    _table_2(folder, found)
    _tables_3_and_4(folder, found)
    _figure_7(folder, found)
    _figure_8(folder, found, play)
    _tables_5_and_6(folder, found, play)
    _figures_10_and_11(folder, found)
    _figure_12(folder, found, play)
    _beyond(folder, found, play)
    folder.text.append(f"\nMade in {time.perf_counter() - begin:.0f} s.\n")
    return folder.close()


def _cost() -> float:
    """Of all simulations of a log, for each of its jobs."""
    targets = 1 + len(OMAX) + len(LAMBDA_S) + len(DELTA) + len(BEYOND)
    ejb = 1 + len(RUNS) + len(ARRIVALS) + len(BEYOND_MULTI) * len(RUNS)
    return TARGETS * targets + EJB * ejb + EASY * (1 + len(ARRIVALS))


def _log(folder: Path, begins: str) -> Path:
    paths = sorted(path for path in folder.glob(f"{begins}*") if ".swf" in path.name)
    if not paths:
        hint = "the logs are at https://www.cs.huji.ac.il/labs/parallel/workload/"
        raise EjbError(Code.INVALID, f"{folder} has no log {begins}*.swf", hint=hint)
    return paths[0]


def _table_2(folder: _Folder, found: Sequence[_Trace]) -> None:
    rows = []
    for trace, known in zip(found, paper.TRACES, strict=True):
        used = 100 * utilization(trace.workload.jobs, trace.easy, trace.workload.processors)
        rows.append([trace.name, known.processors, f"{known.jobs:,}", f"{len(trace.workload):,}", known.duration,
                     f"{known.utilization:.1f}", f"{used:.1f}"])  # fmt: skip
    head = ["log", "processors", "jobs (paper)", "jobs", "duration", "utilization % (paper)", "under EASY %"]
    folder.table("table-2", "Table 2: the logs", head, rows)


def _tables_3_and_4(folder: _Folder, found: Sequence[_Trace]) -> None:
    changes, moves = [], []
    for trace in found:
        s = trace.targets.summary()
        at = trace.targets.targets
        jobs = trace.workload.jobs
        own = (trace.targets.fates.end - jobs.submit)[at]
        before = (trace.easy.end - jobs.submit)[at]
        low, high = (100 * bound / float(before.mean()) for bound in confidence_95(own - before))
        p = paper.TABLE_3[trace.name]
        changes.append([trace.name, f"{p[0]:,} / {s['targets']:,}", _pair(p[1], s["wait_change_percent"]),
                        _pair(p[2], s["run_change_percent"]), _pair(p[3], s["turnaround_change_percent"]),
                        f"{low:+.1f} to {high:+.1f}"])  # fmt: skip
        q = paper.TABLE_4[trace.name]
        keys = ("mean_subjobs", "mean_migrations", "migration_duration_percent", "overhead_percent")
        moves.append([trace.name, *(f"{value:.1f} / {s[key]:.1f}" for value, key in zip(q, keys, strict=True))])
    head = ["log", "targets", "wait %", "run %", "turnaround %", "95 % interval"]
    note = "Paper / ours; changes against EASY, one elastic job a simulation."
    folder.table("table-3", "Table 3: one elastic job", head, changes, note)
    head = ["log", "subjobs", "migrations", "migration duration %", "overhead %"]
    folder.table("table-4", "Table 4: migrations", head, moves, "Paper / ours.")


def _pair(printed: float, ours: float | None) -> str:
    return f"{printed:+.1f} / {_known(ours):+.1f}"


def _known(value: float | None) -> float:
    """As a float, which is none (nan) where a log has no target."""
    return math.nan if value is None else value


def _figure_7(folder: _Folder, found: Sequence[_Trace]) -> None:
    before, after, errors, speedups = {}, {}, {}, {}
    for trace in found:
        jobs, at = trace.workload.jobs, trace.targets.targets
        before[trace.name] = means(jobs, trace.easy, at).mean_turnaround_s
        after[trace.name] = means(jobs, trace.targets.fates, at).mean_turnaround_s
        low, high = confidence_95((trace.targets.fates.end - trace.easy.end)[at])
        errors[trace.name] = (high - low) / 2
        speedups[trace.name] = ((trace.easy.end - jobs.submit) / (trace.targets.fates.end - jobs.submit))[at]
    rows = [[n, f"{(v > 1).mean():.3f}", f"{(v == 1).mean():.3f}", f"{(v < 1).mean():.3f}", f"{v.max():.0f}"]
            for n, v in speedups.items()]  # fmt: skip
    folder.figure(
        "Figure 7a: turnaround of one elastic job (error bars: 95 % of the difference)",
        figures.turnaround_bars(folder.path, before, after, errors),
    )
    folder.figure("Figure 7b: speedups", figures.speedup_cdf(folder.path, speedups))
    head = ["log", "faster", "unchanged", "slower", "highest speedup"]
    note = "Shares of the targets. The paper: 1/4 unchanged, fewer than 3 % slower, some 1,000 times as fast."
    folder.table("figure-7b", "Figure 7b in figures", head, rows, note)


def _figure_8(folder: _Folder, found: Sequence[_Trace], play: PaperRuns) -> None:
    axes: tuple[tuple[str, str, Sequence[float], float], ...] = (
        ("O_max", "omax", OMAX, 1.0),
        ("migration, lambda (min)", "lambda_s", LAMBDA_S, 60.0),
        ("penalty factor, Delta", "delta", DELTA, 1.0),
    )
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    rows = []
    for label, name, values, unit in axes:
        lines: dict[str, list[tuple[float, float]]] = {trace.name: [] for trace in found}
        for value in values:
            row = [label, f"{value / unit:g}"]
            for trace in found:
                changes: dict[str, Any] = {name: value}
                parameters = replace(BundlingParameters(), **changes)
                what = f"Figure 8, {trace.name}, {name} {value}"
                s = play.targets(what, trace.workload, trace.easy, parameters=parameters).summary()
                percent = _known(s["turnaround_change_percent"])
                lines[trace.name].append((value / unit, percent))
                row.append(f"{percent:+.1f}")
            rows.append(row)
        panels[label] = lines
    folder.figure("Figure 8: sensitivity of one elastic job", figures.sensitivity(folder.path, panels))
    head = ["parameter", "value", *(trace.name for trace in found)]
    folder.table("figure-8", "Figure 8 in figures", head, rows, "Change of the mean turnaround, %.")


def _both(trace: _Trace, ejb: Outcome) -> tuple[Any, Any]:
    """Flags of the jobs that count before and after, and of the elastic ones."""
    kept = paper_trim(trace.workload.jobs, trace.easy) & (ejb.end <= trace.workload.jobs.submit.max())
    return kept, ejb.elastic != 0


def _kinds(kept: Any, elastic: Any) -> dict[str, Any]:
    return {"elastic": kept & elastic, "non-elastic": kept & ~elastic, "all": kept}


def _tables_5_and_6(folder: _Folder, found: Sequence[_Trace], play: PaperRuns) -> None:
    rows, idle = [], []
    for trace in found:
        jobs = trace.workload.jobs
        changes: dict[str, list[float]] = {"elastic": [], "non-elastic": [], "all": [], "idle": []}
        for lambda_s in RUNS:
            parameters = BundlingParameters(lambda_s=float(lambda_s))
            ejb = play.ejb(f"Table 5, {trace.name}, lambda {lambda_s}", trace.workload, MIN_ELASTIC, parameters)
            kept, elastic = _both(trace, ejb)
            for kind, chosen in _kinds(kept, elastic).items():
                old, new = means(jobs, trace.easy, chosen), means(jobs, ejb, chosen)
                changes[kind].append(change(old.mean_turnaround_s, new.mean_turnaround_s))
                trace.slowdowns.setdefault(kind, []).append(new.mean_bounded_slowdown)
            changes["idle"].append(change(idle_while_queued(trace.easy), idle_while_queued(ejb)))
        kept, elastic = _both(trace, trace.ejb)
        for kind, chosen in _kinds(kept, elastic).items():
            p = paper.TABLE_5[trace.name, kind]
            rows.append(_row_5(trace, kind, chosen, p, changes[kind]))
        q = paper.TABLE_6[trace.name]
        before, after = idle_while_queued(trace.easy), idle_while_queued(trace.ejb)
        total = trace.workload.processors
        idle.append([trace.name, f"{q[0]} / {before:.1f}", f"{100 * before / total:.1f}", f"{q[1]} / {after:.1f}",
                     f"{100 * after / total:.1f}", f"{q[2]:+.1f} / {_spread(changes['idle'])}"])  # fmt: skip
    head = ["log", "jobs", "count", "turnaround before", "after", "change %", "95 % interval", "wait before", "after",
            "run before", "after"]  # fmt: skip
    runs = f"mean and standard deviation over {len(RUNS)} runs, lambda {RUNS[0]} to {RUNS[-1]} s"
    note = f"Paper / ours; seconds. Figures at lambda 120 s, changes as {runs}, since the system is chaotic."
    folder.table("table-5", "Table 5: all jobs of 8 processors and more elastic", head, rows, note)
    head = ["log", "idle before", "%", "idle after", "%", "change %"]
    folder.table("table-6", "Table 6: fragmentation", head, idle, f"Paper / ours; changes as {runs}.")


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):+.1f} ± {np.std(values, ddof=1):.1f}"


def _row_5(trace: _Trace, kind: str, chosen: Any, printed: Sequence[Any], changes: Sequence[float]) -> list[str]:
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
        f"{printed[3]:+.1f} / {_spread(changes)}",
        f"{low:,.0f} to {high:,.0f}",
        beside(printed[4], old.mean_wait_s),
        beside(printed[5], new.mean_wait_s),
        beside(printed[7], old.mean_run_s),
        beside(printed[8], new.mean_run_s),
    ]


def _figures_10_and_11(folder: _Folder, found: Sequence[_Trace]) -> None:
    panels: dict[str, dict[str, tuple[float, float, float]]] = {}
    waits = {}
    rows = []
    for trace in found:
        jobs = trace.workload.jobs
        kept, elastic = _both(trace, trace.ejb)
        panels[trace.name] = {}
        for kind, chosen in _kinds(kept, elastic).items():
            old = means(jobs, trace.easy, chosen).mean_bounded_slowdown
            new = means(jobs, trace.ejb, chosen).mean_bounded_slowdown
            panels[trace.name][kind] = (old, new, float(np.std(trace.slowdowns[kind], ddof=1)))
            rows.append([trace.name, kind, f"{old:.1f}", f"{new:.1f}", f"{change(old, new):+.1f}"])
        size = jobs.processors[kept].astype(np.float64)
        waits[trace.name] = (size, (trace.easy.start - jobs.submit)[kept], (trace.ejb.start - jobs.submit)[kept])
    title = f"Figure 10: bounded slowdown (EJB: error bars are a standard deviation over {len(RUNS)} runs)"
    folder.figure(title, figures.slowdown_bars(folder.path, panels))
    folder.table("figure-10", "Figure 10 in figures", ["log", "jobs", "EASY", "EJB", "change %"], rows)
    paths, slopes = figures.fairness(folder.path, waits)
    folder.figure("Figure 11: waiting time over size", paths)
    flat = [[name, f"{a:.1f}", f"{b:.1f}"] for name, (a, b) in slopes.items()]
    folder.table("figure-11", "Figure 11 in figures", ["log", "EASY, s a processor", "EJB, s a processor"], flat)


def _figure_12(folder: _Folder, found: Sequence[_Trace], play: PaperRuns) -> None:
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


def _beyond(folder: _Folder, found: Sequence[_Trace], play: PaperRuns) -> None:
    rows = []
    for name, changes in BEYOND:
        row = ["one elastic job", name]
        for trace in found:
            of_row = dict(changes)
            keep = bool(of_row.pop("keep_placeholder", True))
            parameters = replace(BundlingParameters(), **of_row)
            what = f"beyond the paper, {trace.name}, {name}"
            s = play.targets(what, trace.workload, trace.easy, parameters=parameters, keep_placeholder=keep).summary()
            row.append(f"{_known(s['turnaround_change_percent']):+.1f} (overhead {s['overhead_percent']:.0f})")
        rows.append(row)
    for name, narrowest, changes in BEYOND_MULTI:
        row = ["all elastic", name]
        for trace in found:
            values = []
            for lambda_s in RUNS:
                parameters = replace(BundlingParameters(), lambda_s=float(lambda_s), **changes)
                what = f"beyond the paper, {trace.name}, {name}, lambda {lambda_s}"
                ejb = play.ejb(what, trace.workload, narrowest, parameters)
                kept, _ = _both(trace, ejb)
                old, new = means(trace.workload.jobs, trace.easy, kept), means(trace.workload.jobs, ejb, kept)
                values.append(change(old.mean_turnaround_s, new.mean_turnaround_s))
            row.append(_spread(values))
        rows.append(row)
    head = ["", "", *(trace.name for trace in found)]
    note = f"Change of the mean turnaround of all jobs in question, %; all elastic: over {len(RUNS)} runs."
    folder.table("beyond", "Beyond the paper", head, rows, note)
