"""`ejb resize` from outside, and `ejb elastic` from inside a job: how many places an evolving job has from now on."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from ejbd.cli import completion
from ejbd.cli.options import AsJson, client, output
from ejbd.cli.show.words import clock
from ejbd.client.job import Job
from ejbd.errors import Code, EjbError

TIME_OUT = 124
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0.0, help="Wait so long until it holds them; exit with 124 after."),
]

Key = Annotated[
    str,
    typer.Option("--key", metavar="WORD", help="Name this request: with a key seen before it is that one."),
]


def resize(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name an evolving job.", autocompletion=completion.jobs)],
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="PLACES", help="Give it so many from now to its end.")
    ] = None,
    by: Annotated[
        int | None, typer.Option("--by", metavar="PLACES", help="Give it so many more than now, or -PLACES fewer.")
    ] = None,
    key: Key = "",
    wait_s: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Give a running evolving job so many places from now on."""
    if (to is None) == (by is None):
        raise EjbError(Code.INVALID, "a job is resized --to so many places, or --by so many")
    _resize(context, job, to, wait_s, as_json, by, key)


def _resize(
    context: typer.Context,
    job: str,
    to: int | None,
    wait_s: float,
    as_json: bool,
    by: int | None = None,
    key: str = "",
) -> None:
    out = output(as_json, False)
    handle = Job(client(context), job)
    course = handle.resize(to, by=by, key=key)
    places, begin_s = course["steps"][-1][1], course["starts_s"][-1]
    out.result(
        course, lambda: out.line(f"job {job} has {places} places from {clock(begin_s)} to {clock(course['end_s'])}")
    )
    if wait_s:
        try:
            handle.await_places(places, course["base"], wait_s)
        except TimeoutError as late:
            out.note(f"{late}; the request stays")
            raise typer.Exit(TIME_OUT) from None


elastic = typer.Typer(help="Resize the job that this process belongs to.", no_args_is_help=True)


def _own() -> str:
    """The job that this process is of. Raises EjbError (INVALID) outside of one."""
    job = os.environ.get("EJB_JOB_ID", "")
    if not job:
        what = "this process is of no job of EJB's: EJB_JOB_ID is not set"
        raise EjbError(Code.INVALID, what, hint="from outside: ejb resize JOB --to PLACES")
    return job


@elastic.command()
def init(context: typer.Context, as_json: AsJson = False) -> None:
    """Show what the job holds now, and the most that it can have."""
    out = output(as_json, False)
    found: Any = Job(client(context), _own()).status()
    told = {"job": found["id"], "processors": found["processors"], "most": found["processes"]}
    out.result(
        told, lambda: out.line(f"job {told['job']} holds {told['processors']} processors, of {told['most']} ranks")
    )


@elastic.command()
def expand(
    context: typer.Context,
    places: Annotated[int, typer.Argument(min=1, help="Have so many from now on.")],
    wait_s: Wait = 60.0,
    as_json: AsJson = False,
) -> None:
    """Have more places, and wait until they are held; exit with 124 where they are not by then. The request stays."""
    _resize(context, _own(), places, wait_s, as_json)


@elastic.command()
def contract(
    context: typer.Context,
    places: Annotated[int | None, typer.Argument(min=1, help="Have so many from now on.")] = None,
    by: Annotated[int | None, typer.Option("--by", min=1, metavar="PLACES", help="Have so many fewer instead.")] = None,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Have fewer places; the rest is given back at once."""
    if (places is None) == (by is None):
        raise EjbError(Code.INVALID, "contract is to so many places, or --by so many")
    _resize(context, _own(), places, 0.0, as_json, -by if by is not None else None, key)


@elastic.command()
def done(context: typer.Context, as_json: AsJson = False) -> None:
    """Give back all that the job does not hold throughout."""
    _resize(context, _own(), None, 0.0, as_json)


def add_to(app: typer.Typer) -> None:
    app.command("resize")(resize)
    app.add_typer(elastic, name="elastic")
