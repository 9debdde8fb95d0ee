"""Commands about what is known of run times: sequences of walltimes, and the history that they come from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybeInt, MaybeText, output
from ejbd.cli.words import duration

history_app = typer.Typer(help="Run times of the past, and the walltimes that follow.", no_args_is_help=True)

Law = Annotated[
    str,
    typer.Option(
        "--law", help="truncnorm:mu=8h,sigma=2h,low=0h,high=20h; or lognormal, weibull, exponential, beta, pareto."
    ),
]


@history_app.command("sequence")
def sequence(
    law: Law,
    points: Annotated[MaybeInt, typer.Option("--points", help="Of the discretisation.  [default: 200]")] = None,
    zeta: Annotated[float, typer.Option("--zeta", help="Rate of backfilling work, 0 to 1: ATOptimal.")] = 0.0,
    checkpoint: Annotated[MaybeText, typer.Option("--checkpoint", help="What a checkpoint takes (30s, 5m).")] = None,
    restart: Annotated[MaybeText, typer.Option("--restart", help="What a restart takes.")] = None,
    limit: Annotated[MaybeText, typer.Option("--limit", help="No walltime is longer (30m, 24h).")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the walltimes to ask for, one after the other, where the law of the run times is known."""
    from ejbd.sequences import sequence_for

    out = output(as_json, False)
    found = sequence_for(law, points=points, zeta=zeta, checkpoint=checkpoint, restart=restart, limit=limit)
    out.result(found, lambda: _sequence_table(found))


def _sequence_table(found: dict[str, Any]) -> None:
    out = output(False, False)
    headings = ["", "WALLTIME", "SECONDS"]
    rows = [[f"{at}.", duration(time), f"{time:.6g}"] for at, time in enumerate(found["sequence_s"], 1)]
    if "finishes" in found:
        headings.append("FINISHES")
        rows = [[*row, f"{share:.1%}"] for row, share in zip(rows, found["finishes"], strict=True)]
    else:
        headings += ["RUN BY THEN", "CHECKPOINT"]
        behind = zip(rows, found["progress_s"], found["checkpoint"], strict=True)
        rows = [[*row, duration(until), "yes" if saves else ""] for row, until, saves in behind]
    out.table(headings, rows, frozenset({1, 2, 3}))
    cost = found["expected_cost_s"]
    out.line(f"expected cost {duration(cost)} ({cost:.6g} s), mean run time {duration(found['mean_s'])}")


def add_to(app: typer.Typer) -> None:
    app.add_typer(history_app, name="history")
