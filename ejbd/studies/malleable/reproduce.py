"""`ejb sim reproduce malleable`: Utrera et al. beside ours, where folding pays, and folding beside bundling."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.sim import progress
from ejbd.studies.malleable import beside, breakeven, figures, logs, small
from ejbd.studies.malleable.printed import FIGURE_2, LOGS, TABLE_1
from ejbd.studies.malleable.runs import Figures
from ejbd.studies.paper.logs import logs_in
from ejbd.studies.paper.report import Folder

SEEDS = 20
"""Logs of Lublin's model for each load of Table 1."""
_POLICIES = {"fcfs": "FCFS", "easy": "EASY", "malleable": "FCFS-malleable"}


def reproduce_malleable(
    out: Path, traces: Path | None = None, *, workers: int = 1, limit: int | None = None, seeds: int = SEEDS
) -> list[Path]:
    """Write malleable.md, malleable.json, tables and plots to `out`; the files made, the page first.

    Without `traces` it is Figure 2 and Table 1, which need no log. Of the logs those count that are in the folder.
    `limit`: the first rows only, of the logs that are played beside bundling. Raises EjbError where the folder has
    none of the logs.
    """
    folder = Folder(out, "malleable", "FCFS-malleable: Utrera et al. beside ours, and beside bundling")
    path = out / "malleable.json"
    told: dict[str, Any] = {"figure2": _figure_2(folder)}

    def write() -> list[Path]:
        """After each part: what is interrupted leaves what was done."""
        path.write_text(json.dumps(told, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        page, *rest = folder.close()
        return [page, path, *rest]

    with progress.part("Table 1", 0.0, 0.05):
        told["table1"] = _table_1(folder, seeds)
    if traces is None:
        folder.text.append("\nNo logs were given (`--traces`): Tables 2 and 3 and what follows are not made.\n")
        return write()
    paths = {known.name: path for known, path in logs_in(traces)}
    for part in (_logs, _break_even, _beside):
        write()
        told |= part(folder, paths, workers, limit)
    return write()


def _figure_2(folder: Folder) -> dict[str, Any]:
    outcomes = small.figure_2()
    told = small.figure_2_json(outcomes)
    folder.figure("Figure 2: six jobs on ten processors", figures.schedules(folder.path, outcomes))
    rows = []
    for name, of in told.items():
        response, slowdown, idle = FIGURE_2[name]
        ends = " ".join(str(end) for end in of["ends"])
        rows.append([_POLICIES[name], ends, response, f"{of['mean_response']:.3f}", slowdown,
                     f"{of['mean_slowdown']:.3f}", f"{idle:g}", f"{of['fragmentation_percent']:g}"])  # fmt: skip
    head = ["policy", "ends", "response (paper)", "response", "slowdown (paper)", "slowdown", "fragmentation % (paper)",
            "fragmentation %"]  # fmt: skip
    note = (
        "Two processes on a processor take twice as long. The slowdown is formula 1, which is not bounded. The paper's "
        "fragmentation of 0 % cannot be: J6 waits from 4 to 5 beside four free processors."
    )
    folder.table("figure-2", "Figure 2 in figures", head, rows, note)
    return told


def _table_1(folder: Folder, seeds: int) -> dict[str, Any]:
    found = small.table_1(seeds)
    rows, told = [], {}
    for load, printed in TABLE_1.items():
        row: list[Any] = [load]
        for policy in ("easy", "malleable"):
            ours = found[load][policy]
            assert isinstance(ours, Figures)
            of_paper = printed[f"{policy} simulated"]
            mine = (ours.wait_s, ours.response_s, ours.slowdown)
            row += [" / ".join(f"{x:g}" for x in of_paper), " / ".join(f"{x:.1f}" for x in mine)]
            told[f"{load} {policy}"] = ours.to_json()
        rows.append(row)
    head = ["load %", "EASY (paper)", "EASY", "malleable (paper)", "malleable"]
    note = (
        f"Mean wait / response / slowdown. {seeds} logs of Lublin's model for each load, of {small.MADE_JOBS} jobs on "
        f"{small.MADE_PROCESSORS} processors. Times are scaled to a mean run of {small.MADE_RUN_S:g} s. The model is "
        f"{small.MADE_MODEL.value}. The paper's own log is not there, so that only the order of its figures can be "
        "held. The live half of the table was not run."
    )
    worse = [load for load in TABLE_1 if told[f"{load} malleable"]["response_s"] > told[f"{load} easy"]["response_s"]]
    if worse:
        loads = ", ".join(f"{load} %" for load in worse)
        note = f"FCFS-malleable is worse than EASY here in mean response at {loads}. {note}"
    folder.table("table-1", "Table 1: made-up logs", head, rows, note)
    return told


def _logs(folder: Folder, paths: Mapping[str, Path], workers: int, limit: int | None) -> dict[str, Any]:
    known = [log for log in LOGS if log.name in paths]
    found = []
    for at, log in enumerate(known):
        with progress.part(log.name, 0.05 + 0.2 * at / len(known), 0.05 + 0.2 * (at + 1) / len(known)):
            found.append(logs.play_log(paths[log.name], log))
    if found:
        _tables_2_and_3(folder, found)
    return {"logs": {one.log.name: one.to_json() for one in found}}


def _tables_2_and_3(folder: Folder, found: Sequence[logs.LogRuns]) -> None:
    folder.table("table-2", "Table 2: the logs", *logs.table_2(found), note=(
        "Rows of the log as it stands; each is a job of one processor and one second at least. Use is field 6 over "
        "the run time where the log has it, and drawn about the paper's mean where not. Asked: processors of jobs that "
        "wait or run, a processor, under EASY."
    ))  # fmt: skip
    draws = len(found[0].draws)
    folder.table("table-3", "Table 3: mean MPL", *logs.table_3(found), note=(
        f"The model is paper (formulas 3 and 4); {draws} draws of the overhead, and of the use that is not known."
    ))  # fmt: skip
    folder.table("figure-3", "Figure 3 in figures", *logs.figure_3(found), note=(
        f"Means over {draws} draws, and in how many of them FCFS-malleable is better than EASY. The paper has it "
        "better in response on all three logs, and in slowdown on CTC and BLUE but not on SDSC."
    ))  # fmt: skip
    folder.figure("Figure 3: EASY and FCFS-malleable", figures.bars(folder.path, found))


def _break_even(folder: Folder, paths: Mapping[str, Path], workers: int, limit: int | None) -> dict[str, Any]:
    with progress.part("where folding pays", 0.25, 0.4):
        points = breakeven.break_even(paths)
    folder.table("break-even", "Where folding pays", *breakeven.table(points), note=(
        "Mean response / bounded slowdown against EASY in per cent, by how many times as long a job really takes on "
        "half of its processors. Beside ours stand the figures of another implementation; the farthest differ by "
        f"{breakeven.farthest(points):.0f} points. CTC, BLUE and SDSC are the paper's rows, KTH is the whole log."
    ))  # fmt: skip
    folder.figure("Where folding pays", figures.break_even(folder.path, points))
    return {"break_even": [point.to_json() for point in points]}


def _beside(folder: Folder, paths: Mapping[str, Path], workers: int, limit: int | None) -> dict[str, Any]:
    with progress.part("beside bundling", 0.4, 1.0):
        cells, easy = beside.play_beside(paths, folder.path, workers=workers, limit=limit)
    worst = max(cells, key=lambda cell: cell.all_jobs)
    rows = f"the first {limit} rows of each log" if limit else "whole logs"
    means = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in easy.items())
    folder.table("beside", "EASY, bundling, folding", *beside.table(cells), note=(
        f"Worst cell: {worst.policy} on {worst.log} at Delta {worst.delta:g}: {worst.all_jobs:+.1f} %. Change of the "
        f"mean turnaround against EASY ({means}); {rows}, the paper's trim. Bundling: jobs of 8 processors and more, "
        "with suspension, the order of least work, the guard, and lambda 120 s. Folding in place costs nothing and is "
        "done before one is checkpointed. FCFS-malleable may fold all jobs, each of which then takes 2 Delta as long."
    ))  # fmt: skip
    folder.text.append(f"\n{_better(cells)}\n")
    return {"beside": [cell.to_json() for cell in cells], "easy_mean_turnaround_s": easy}


def _better(cells: Sequence[beside.Cell]) -> str:
    """By how much folding changes what the guard does, on average and at its worst, in a sentence."""
    pairs = []
    for cell in cells:
        if cell.policy == "guard":
            other = next(c for c in cells if (c.log, c.delta, c.policy) == (cell.log, cell.delta, "guard, folding"))
            pairs.append((other.all_jobs - cell.all_jobs, cell.log, cell.delta))
    worst, log, delta = max(pairs)
    mean = float(np.mean([pair[0] for pair in pairs]))
    return (
        f"Against the guard with checkpoints alone, folding changes the mean turnaround of all jobs by {mean:+.1f} "
        f"points on average; at worst by {worst:+.1f}, on {log} at Delta {delta:g}."
    )
