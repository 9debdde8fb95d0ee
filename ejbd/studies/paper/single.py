"""One elastic job a simulation: Tables 3 and 4, Figures 7 and 8 of Liu & Weissman (SC'15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.sim.fairness import shares
from ejbd.sim.metrics import confidence_95, means
from ejbd.studies.paper import figures, printed
from ejbd.studies.paper.report import Folder, TraceRuns, number
from ejbd.studies.paper.runs import PaperRuns

OMAX = (2, 4, 8, 16, 32, 64)
LAMBDA_S = (60, 120, 240, 360, 480, 600)
DELTA = (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)


def tables_3_and_4(folder: Folder, found: Sequence[TraceRuns]) -> None:
    changes, moves = [], []
    for trace in found:
        s = trace.targets.summary()
        at = trace.targets.targets
        jobs = trace.workload.jobs
        own = (trace.targets.outcome.end - jobs.submit)[at]
        before = (trace.easy.end - jobs.submit)[at]
        low, high = (100 * bound / float(before.mean()) for bound in confidence_95(own - before))
        p = printed.TABLE_3[trace.name]
        changes.append([trace.name, f"{p[0]:,} / {s['targets']:,}", _pair(p[1], s["wait_change_percent"]),
                        _pair(p[2], s["run_change_percent"]), _pair(p[3], s["turnaround_change_percent"]),
                        f"{low:+.1f} to {high:+.1f}"])  # fmt: skip
        q = printed.TABLE_4[trace.name]
        keys = ("mean_subjobs", "mean_migrations", "migration_duration_percent", "overhead_percent")
        row = [f"{value:.1f} / {s[key]:.1f}" for value, key in zip(q, keys, strict=True)]
        moves.append([trace.name, *row, *(f"{share:.3f}" for share in shares(trace.targets.outcome, at))])
    head = ["log", "targets", "wait %", "run %", "turnaround %", "95 % interval"]
    note = "Paper / ours; changes against EASY, one elastic job a simulation."
    folder.table("table-3", "Table 3: one elastic job", head, changes, note)
    head = [
        "log",
        "subjobs",
        "migrations",
        "migration duration %",
        "overhead %",
        "share on several subjobs",
        "share that moves",
    ]
    folder.table("table-4", "Table 4: migrations", head, moves, "Paper / ours; shares of the targets are ours alone.")


def _pair(printed: float, ours: float | None) -> str:
    return f"{printed:+.1f} / {number(ours):+.1f}"


def figure_7(folder: Folder, found: Sequence[TraceRuns]) -> None:
    before, after, errors, speedups = {}, {}, {}, {}
    for trace in found:
        jobs, at = trace.workload.jobs, trace.targets.targets
        before[trace.name] = means(jobs, trace.easy, at).mean_turnaround_s
        after[trace.name] = means(jobs, trace.targets.outcome, at).mean_turnaround_s
        low, high = confidence_95((trace.targets.outcome.end - trace.easy.end)[at])
        errors[trace.name] = (high - low) / 2
        speedups[trace.name] = ((trace.easy.end - jobs.submit) / (trace.targets.outcome.end - jobs.submit))[at]
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


def figure_8(folder: Folder, found: Sequence[TraceRuns], play: PaperRuns) -> None:
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
                percent = number(s["turnaround_change_percent"])
                lines[trace.name].append((value / unit, percent))
                row.append(f"{percent:+.1f}")
            rows.append(row)
        panels[label] = lines
    folder.figure("Figure 8: sensitivity of one elastic job", figures.sensitivity(folder.path, panels))
    head = ["parameter", "value", *(trace.name for trace in found)]
    folder.table("figure-8", "Figure 8 in figures", head, rows, "Change of the mean turnaround, %.")
