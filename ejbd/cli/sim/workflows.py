"""`ejb sim workflow`: E-HPC's three workflows among the jobs of logs, in four modes."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from ejbd.cli.options import MaybeText, output
from ejbd.cli.output import json_text
from ejbd.cli.sim.options import Limit, Procs, Rule, RuleName, Traces, source_of, tell_rows, writable
from ejbd.errors import Code, EjbError


def workflow(
    traces: Traces,
    procs: Procs = None,
    widths: Annotated[
        str, typer.Option("--widths", metavar="N,...", help="Give the parallel stages so many processors.")
    ] = "32,64,128,256",
    every: Annotated[int, typer.Option("--every", min=1, help="Have a workflow arrive after every so many jobs.")] = 50,
    move: Annotated[float, typer.Option("--move", min=0, metavar="S", help="Reckon so much for a move.")] = 6.0,
    over: Annotated[
        float, typer.Option("--over", min=1, help="Ask for walltimes of so many times the run time.")
    ] = 2.0,
    ahead: Annotated[
        float, typer.Option("--ahead", min=0, metavar="S", help="Queue the next stage so long ahead (fast).")
    ] = 600.0,
    linger: Annotated[
        float, typer.Option("--linger", min=0, metavar="S", help="Hold idle processors for so long at most (fast).")
    ] = 60.0,
    learned: Annotated[
        bool, typer.Option("--learned", help="Know when a stage ends, as from earlier runs (fast).")
    ] = False,
    delta: Annotated[
        float, typer.Option("--delta", min=1, help="Reckon so much for sharing a processor (elastic stages).")
    ] = 1.0,
    limit: Limit = None,
    rule: Rule = RuleName.archive,
    json_file: Annotated[
        MaybeText, typer.Option("--json", metavar="FILE", help="Write the rows as JSON; - is stdout.")
    ] = None,
) -> None:
    """Play Montage, BLAST and the synthetic workflow as one wide job, as chained jobs, and in both of E-HPC's modes."""
    from ejbd.sim.settings import load
    from ejbd.sim.stages import Rules, Way
    from ejbd.studies.staged.flows import compare, summary

    wanted = _numbers(widths)
    rules = Rules(Way.ONE, move_s=move, over=over, ahead_s=ahead, linger_s=linger, learned=learned)
    rows: list[dict[str, Any]] = []
    for trace in traces:
        workload = load(source_of(trace, procs, limit, rule))
        tell_rows(workload)
        rows += compare(workload, wanted, every, rules, _say, delta)
    if json_file is not None:
        with writable(json_file) as out:
            out.write(json_text({"summary": summary(rows), "rows": rows}, indent=2) + "\n")
    if json_file != "-":
        headings = [
            "LOG",
            "WIDTH",
            "WORKFLOW",
            "MODE",
            "JOBS",
            "CORE-H",
            "IDLE",
            "HOURS",
            "WAITED",
            "OTHERS",
            "EQ. 7",
            "EQ. 6",
        ]
        output(False, False).table(
            headings, [_cells(row) for row in (*rows, *summary(rows))], frozenset({1, *range(4, 12)})
        )


def _say(line: str) -> None:
    print(f"ejb: {line}", file=sys.stderr)


def _cells(row: dict[str, Any]) -> list[str]:
    from ejbd.studies.staged.flows import label

    return [
        row["log"][:12],
        str(row["width"] or "> 32"),
        row["workflow"],
        label(row["mode"], row["bundled"], row["elastic"]),
        f"{row['allocations']:.3g}",
        *(f"{row[key]:.2f}" for key in ("core_h", "idle_core_h", "turnaround_h", "wait_h", "others_h")),
        *(f"{100 * row[key]:.0f} %" for key in ("eq7", "eq6")),
    ]


def _numbers(text: str) -> list[int]:
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise EjbError(Code.INVALID, f"--widths {text} is not a list of numbers of 1 and more")
    return found
