"""`ejb report`: what elastic jobs were worth."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, client, output
from ejbd.cli.output import printable
from ejbd.cli.show.words import clock


def report(
    context: typer.Context,
    by: Annotated[str, typer.Option("--by", help="Put jobs together by day, user, queue or day,user.")] = "day",
    days: Annotated[float, typer.Option("--days", min=0.0, help="Count jobs that ended in so many last days.")] = 30.0,
    mine: Annotated[bool, typer.Option("--mine", help="Count your own jobs alone (operators see all).")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show by how much jobs ended before J0's promise, and the processor-seconds that were spent for it."""
    out = output(as_json, False)
    query = {"by": by, "since_s": time.time() - days * 86400, "mine": "true" if mine else None}
    if as_csv:
        found = client(context).request("GET", "/v1/savings", query={**query, "format": "csv"})
        out.line(found.body.decode().rstrip("\n"))
        return
    told = client(context).get("/v1/savings", **query)

    def human() -> None:
        rows = [_row(row) for row in [*told["rows"], told["total"]]]
        headings = [
            by.upper(),
            "JOBS",
            "HOURS SAVED",
            "EARLIER",
            "LATER JOBS",
            "LATER",
            "SPENT (CORE-H)",
            "NOT COUNTED",
        ]
        out.table(headings, rows, right=frozenset(range(1, len(headings))))
        out.line(f"jobs that ended since {clock(told['since_s'])}; a job's promise is docs/web.md's")

    out.result(told, human)


def _row(row: dict[str, Any]) -> list[str]:
    hours = [f"{row[name] / 3600:.2f}" for name in ("saved_s", "earlier_s", "later_s", "spent_processor_s")]
    return [
        *(printable(row["key"]), str(row["jobs"]), hours[0], hours[1]),
        *(str(row["later"]), hours[2], hours[3], str(row["uncounted"])),
    ]


def add_to(app: typer.Typer) -> None:
    app.command()(report)
