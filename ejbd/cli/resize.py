"""`ejb resize`: an evolving job holds so many places from now on, asked for from outside or from inside it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ejbd.cli import completion
from ejbd.cli.options import AsJson, client, output
from ejbd.client.messages import job_path

TIMED_OUT = 124  # as `timeout` has it
_LOOK_S = 1.0


def resize(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name a job.", autocompletion=completion.jobs)],
    places: Annotated[int, typer.Argument(metavar="N", min=1, help="Have so many places from now on.")],
    wait_s: Annotated[float, typer.Option("--wait", min=0, help="Wait so many seconds until it has them.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have an evolving job hold this many places from now on."""
    out, daemon = output(as_json, False), client(context)
    body = {"tail": f"to:{places}", "dry_run": dry_run}
    found = daemon.request("POST", job_path(job, "/evolve"), body=body).json()
    deadline = time.monotonic() + (0.0 if dry_run else wait_s)
    has = daemon.request("GET", job_path(job)).json()["processors"]
    while has != places and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        has = daemon.request("GET", job_path(job)).json()["processors"]
    told = {**found, "asked": places, "processors": has}
    out.result(told, lambda: out.line(f"{places} places are asked for; the job holds {has} now"))
    if wait_s and not dry_run and has != places:
        raise typer.Exit(TIMED_OUT)


def add_to(app: typer.Typer) -> None:
    app.command("resize")(resize)
