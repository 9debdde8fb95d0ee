"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ejbd.cli import completion
from ejbd.cli.output import Output, choose
from ejbd.client.client import Client

Selectors = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Name jobs by ids, beginnings of ids, `last`, `last-2`, ranges as submitted (`A..B`), or `all` that live.",
        autocompletion=completion.jobs,
    ),
]
LAST: list[str] = ["last"]  # the default of Selectors
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but what a script needs.")]
# typer reads these at run time, where `X | None` is no type of its own
MaybeText = Optional[str]  # noqa: UP045
MaybePath = Optional[Path]  # noqa: UP045
MaybeInt = Optional[int]  # noqa: UP045
MaybeFloat = Optional[float]  # noqa: UP045


def client(context: typer.Context) -> Client:
    """The daemon that the command line and the environment name."""
    where = context.find_root().obj or {}
    return Client(where.get("url"), where.get("socket"))


def output(as_json: bool, quiet: bool) -> Output:
    """The output of this command, by its options."""
    return choose(as_json=as_json, quiet=quiet)
