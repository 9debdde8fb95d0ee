"""`ejb evolve`: what comes of an evolving job is replaced while it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ejbd.cli import completion
from ejbd.cli.options import AsJson, client, output
from ejbd.cli.show.words import clock
from ejbd.client.messages import job_path


def evolve(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name a job.", autocompletion=completion.jobs)],
    tail: Annotated[
        str, typer.Argument(metavar="TAIL", help="Have these widths from these times on: now:64,+30m:128.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace what comes of an evolving job that runs, and print when it has each width."""
    out = output(as_json, False)
    body = {"tail": tail, "dry_run": dry_run}
    found = client(context).request("POST", job_path(job, "/evolve"), body=body).json()
    ends = [*found["starts_s"][1:], found["end_s"]]
    rows = [
        [str(number), str(places), clock(begin), clock(end)]
        for number, ((_, places), begin, end) in enumerate(zip(found["steps"], found["starts_s"], ends, strict=True), 1)
    ]
    out.result(found, lambda: out.table(["STEP", "PLACES", "BEGIN", "END"], rows, frozenset({0, 1})))


def add_to(app: typer.Typer) -> None:
    app.command("evolve")(evolve)
