"""`ejb sim sweep`: a grid of settings, here or as batch jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from ejbd.cli.options import AsJson, output
from ejbd.cli.sim.options import (
    DefaultMemory,
    KindName,
    Limit,
    Memory,
    PolicyOption,
    Procs,
    Reshape,
    Rule,
    RuleName,
    Through,
    TiesName,
    TiesOption,
    Traces,
    Trim,
    TrimName,
    figure,
    setting_of,
    source_of,
)
from ejbd.cli.sim.progress import shown
from ejbd.errors import Code, EjbError


def sweep(
    traces: Traces,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Keep the results here; a sweep that was interrupted goes on.")
    ],
    axis: Annotated[
        list[str],
        typer.Option("--vary", metavar="KEY=VALUE,...", help="Vary this, e.g. omax=2,4,8; several make a grid."),
    ],
    procs: Procs = None,
    limit: Limit = None,
    rule: Rule = RuleName.archive,
    ties: TiesOption = TiesName.paper,
    trim: Trim = TrimName.paper,
    policy: PolicyOption = "ejb",
    memory: Memory = None,
    default_memory: DefaultMemory = None,
    reshape: Reshape = None,
    kind: Annotated[
        KindName, typer.Option("--kind", help="Make all jobs elastic at once, or one a simulation.")
    ] = KindName.run,
    cores: Annotated[int, typer.Option("--cores", min=1, help="Run so many simulations at one time.")] = 1,
    part: Annotated[str, typer.Option("--part", metavar="K/N", help="Play only the K-th of N parts.")] = "1/1",
    submit: Annotated[Optional[Through], typer.Option("--submit", help="Submit the parts as batch jobs.")] = None,  # noqa: UP045
    parts: Annotated[int, typer.Option("--parts", min=1, help="With --submit: make so many parts.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Simulate a grid of settings; changes are against EASY on the same log."""
    from ejbd.sim import sweep as sweeps

    axes: dict[str, list[str]] = {}
    for text in axis:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise EjbError(Code.INVALID, f"--vary {text} is not KEY=VALUE,...", hint="e.g. --vary omax=2,4,8")
        axes[key] = values.split(",")
    base = setting_of(
        policy, {}, ties=ties, trim=trim, min_procs=9 if kind is KindName.target else None,
        memory=memory or ("off" if default_memory else None), default_memory=default_memory, reshape=reshape,
    )  # fmt: skip
    sources = [source_of(trace, procs, limit, rule) for trace in traces]
    points = list(sweeps.grid(sources, base, axes, sweeps.Kind(kind.value)))
    if submit is not None:
        words = _without_submission(sys.argv[1:])
        for said in sweeps.submit(words, out_dir, parts, submit.value):
            print(said)
        return
    with shown() as listener:

        def tell(done: int, total: int, name: str) -> None:
            listener(f"{done} of {total} simulations" + (f", {name}" if name else ""), done / total)

        results = sweeps.sweep(points, out_dir, workers=cores, part=sweeps.parse_part(part), tell=tell)
    head = ["TRACE", "SETTING", "TURNAROUND", "CHANGE"]
    rows = []
    for row in results:
        after = row.get("after", row)
        change = row["turnaround_change_percent"]
        told = "" if change is None else f"{change:+.1f} %"
        rows.append([row["trace"], row["setting"], figure(after["mean_turnaround_s"]), told])
    out = output(as_json, False)
    out.result(results, lambda: out.table(head, rows, frozenset({2, 3})))


def _without_submission(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("--submit", "--parts", "--part"):
            skip = True
        elif not word.startswith(("--submit=", "--parts=", "--part=")):
            kept.append(word)
    return kept
