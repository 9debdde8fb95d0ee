"""Commands about what is known of run times: sequences of walltimes, and the history that they come from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ejbd.cli.options import AsJson, MaybeInt, MaybePath, MaybeText, client, output
from ejbd.cli.output import ascii_only, printable, width
from ejbd.cli.show.words import clock, duration
from ejbd.errors import Code, EjbError

history_app = typer.Typer(help="Keep run times of the past, and plan walltimes by them.", no_args_is_help=True)

Law = Annotated[
    str,
    typer.Option(
        "--law",
        help="Take this law: truncnorm:mu=8h,sigma=2h,low=0h,high=20h; or lognormal, weibull, exponential, beta, "
        "pareto.",
    ),
]


@history_app.command("sequence")
def sequence(
    law: Law,
    points: Annotated[
        MaybeInt, typer.Option("--points", help="Discretise the law at so many points.  [default: 200]")
    ] = None,
    zeta: Annotated[
        float, typer.Option("--zeta", help="Plan with this rate of backfilling work, 0 to 1 (ATOptimal).")
    ] = 0.0,
    checkpoint: Annotated[
        MaybeText, typer.Option("--checkpoint", help="Reckon with a checkpoint of this length (30s, 5m).")
    ] = None,
    restart: Annotated[MaybeText, typer.Option("--restart", help="Reckon with a restart of this length.")] = None,
    limit: Annotated[MaybeText, typer.Option("--limit", help="Plan no walltime beyond this (30m, 24h).")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the walltimes to ask for, one after the other, where the law of the run times is known."""
    from ejbd.studies.speculative.sequences import sequence_for

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


class FormatName(StrEnum):
    """The formats of `ejb history import`."""

    sacct = "sacct"
    jobcomp = "jobcomp"
    pbs = "pbs"
    swf = "swf"


@history_app.command("import")
def import_file(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Read sacct --parsable2, jobcomp, PBS accounting or SWF; - is stdin.")],
    format: Annotated[
        Optional[FormatName],  # noqa: UP045
        typer.Option("--format", help="Read the file as this.  [default: by its first line; .swf by its name]"),
    ] = None,
    cluster: Annotated[str, typer.Option("--cluster", help="Keep the runs apart from those of other clusters.")] = "",
    user: Annotated[MaybeText, typer.Option("--user", help="Take only this user's runs.")] = None,
    as_user: Annotated[MaybeText, typer.Option("--as", help="Keep the runs as this user's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Take finished runs in from what the batch system has kept. A run that was taken in before is kept once."""
    from ejbd.cli.history_import import import_runs

    out = output(as_json, False)
    done = import_runs(
        client(context), file, format.value if format else None, cluster=cluster, only=user, as_user=as_user
    )

    def human() -> None:
        out.line(f"{done['read']:,} runs read, {done['new']:,} of them new")
        for what in done["odd"]:
            out.note(what)

    out.result(done, human)


@history_app.command("list")
def list_known(
    context: typer.Context,
    application: Annotated[MaybeText, typer.Argument(help="List only this application.")] = None,
    user: Annotated[MaybeText, typer.Option("--user", help="List only this user's (administrators).")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", min=1, max=10_000, help="List so many, the most often run ones.")
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """List the applications with known runs."""
    out = output(as_json, False)
    found = client(context).get("/v1/history", application=application, user=user, limit=limit)
    headings = ["APPLICATION", "CLASS", "USER", "PROCS", "RUNS", "COMPLETED", "NEWEST"]

    def human() -> None:
        rows = [
            [
                one["application"], one["input_class"] or "-", one["user"], str(one["processors"]), str(one["runs"]),
                str(one["completed"]), clock(one["newest_s"]),
            ]
            for one in found["applications"]
        ]  # fmt: skip
        out.table(headings, rows, frozenset({3, 4, 5}))

    out.result(found, human)


@history_app.command("show")
def show(
    context: typer.Context,
    application: Annotated[str, typer.Argument(metavar="APP[:CLASS]", help="Show this application.")],
    processors: Annotated[MaybeInt, typer.Option("-n", "--ntasks", help="Show runs of this width.")] = None,
    user: Annotated[MaybeText, typer.Option("--user", help="Show another user's (administrators).")] = None,
    limit: Annotated[MaybeText, typer.Option("--limit", help="Plan no walltime beyond this (30m, 24h).")] = None,
    svg: Annotated[MaybePath, typer.Option("--svg", help="Draw the law into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the law of an application's run times and the walltimes that follow from it."""
    from ejbd.cli.show.history_chart import law_chart, law_svg
    from ejbd.studies.speculative.sequences import time_of

    out = output(as_json, False)
    daemon = client(context)
    name, _, kind = application.partition(":")
    limit_s = None if limit is None else time_of("--limit", limit)
    known = daemon.get("/v1/history", application=name, user=user, limit=1000)["applications"]
    fitting = [
        one for one in known
        if processors in (None, one["processors"]) and (not kind or kind == one["input_class"])
    ]  # fmt: skip
    if not fitting:
        wide = "" if processors is None else f" on {processors} processors"
        hint = "`ejb history list` shows what is known"
        raise EjbError(Code.NOT_FOUND, f"no run of {application!r}{wide} is known", hint=hint)
    one = fitting[0]
    found = daemon.get(
        "/v1/history/law", application=name, processors=one["processors"], input_class=one["input_class"] or None,
        user=one["user"], limit_s=limit_s,
    )  # fmt: skip
    if svg is not None:
        try:
            svg.write_text(law_svg(found), encoding="utf-8")
        except OSError as error:
            raise EjbError(Code.INVALID, f"cannot write the picture: {error.strerror}", where=str(svg)) from None

    def human() -> None:
        out.lines(law_chart(found, min(width(), 110), plain=ascii_only()))
        if found["law"] is not None:
            _sequence_table(found)
        for other in fitting[1:4]:
            words = f"{other['runs']} runs on {other['processors']} processors"
            kind = f", class {other['input_class']}" if other["input_class"] else ""
            out.note(f"there are also {words}{kind}, of {printable(other['user'])}")

    out.result(found, human)


def add_to(app: typer.Typer) -> None:
    app.add_typer(history_app, name="history")
