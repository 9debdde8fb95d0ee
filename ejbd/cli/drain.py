"""`ejb drain`: elastic jobs leave nodes for an operator."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybeText, client, output
from ejbd.cli.output import Output, printable
from ejbd.cli.show.words import clock
from ejbd.errors import Code, EjbError
from ejbd.options.moments import parse_moment


def drain(
    context: typer.Context,
    nodes: Annotated[
        MaybeText, typer.Argument(metavar="[NODES]", help="Drain these nodes, e.g. n[1-3],m7; without any, list them.")
    ] = None,
    by: Annotated[
        MaybeText,
        typer.Option(
            "--by", metavar="TIME", help="Have the nodes free by then: now+30minutes, 18:00, 2026-11-30T06:00 ..."
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Use the nodes again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have elastic jobs leave nodes by a time, and use them no more (administrators); without NODES: list them."""
    out, daemon = output(as_json, False), client(context)
    if nodes is None:
        if by is not None or cancel:
            raise EjbError(Code.INVALID, "no node is named", hint="ejb drain n[1-3] --by now+30minutes")
        found = daemon.drains()
    elif cancel == (by is not None):
        raise EjbError(Code.INVALID, "say by when with --by, or take it back with --cancel", hint="one of the two")
    elif cancel:
        found = daemon.cancel_drain(nodes)
    else:
        found = daemon.drain(nodes, parse_moment(by or "", time.time()))
    out.result({"drains": found}, lambda: _show(found, out))


def _show(drains: list[dict[str, Any]], out: Output) -> None:
    if not drains:
        out.line("EJB drains no nodes")
        return
    for one in drains:
        out.line(printable(f"{one['nodes']}: by {clock(one['by_s'])}, asked for by {one['asked_by']}"))
        for sentence in sentences(one):
            out.line(printable(f"  {sentence}"))


def sentences(one: dict[str, Any]) -> list[str]:
    """Which jobs are still there, and when the nodes are free."""
    told = []
    if one["elastic"]:
        told.append(f"elastic jobs there: {', '.join(one['elastic'])}, off them by {clock(one['elastic_free_s'])}")
        if one["stay"]:
            told.append(f"not moved, and there to their end: {', '.join(one['stay'])}")
    else:
        told.append(f"no elastic job is there since {clock(one['elastic_free_s'])}")
    if one["others"]:
        told.append(f"other jobs there: {', '.join(one['others'])}; drain the nodes in the batch system, too")
    if one["elastic"] or one["others"]:
        told.append(
            f"free at {clock(one['free_s'])}" if one["free_s"] is not None else "it is not known when it is free"
        )
    else:
        told.append("the nodes are free")
    return told


def add_to(app: typer.Typer) -> None:
    app.command()(drain)
