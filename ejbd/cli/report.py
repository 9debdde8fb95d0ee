"""`ejb report`: what elastic jobs were worth, and what other jobs gained or lost by them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, client, output
from ejbd.cli.output import Output, printable
from ejbd.cli.show.words import clock


def report(
    context: typer.Context,
    by: Annotated[str, typer.Option("--by", help="Put jobs together by day, user, queue or day,user.")] = "day",
    days: Annotated[float, typer.Option("--days", min=0.0, help="Count jobs that ended in so many last days.")] = 30.0,
    mine: Annotated[bool, typer.Option("--mine", help="Count your own jobs alone (operators see all).")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    others: Annotated[
        bool, typer.Option("--others", help="With --csv: print what other jobs gained and lost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show by how much jobs ended before J0's promise, what was spent for it, and what other jobs gained or lost."""
    out = output(as_json, False)
    query = {"by": by, "since_s": time.time() - days * 86400, "mine": "true" if mine else None}
    if as_csv:
        found = client(context).request(
            "GET", "/v1/savings", query={**query, "format": "csv", "of": "others" if others else "elastic"}
        )
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
        out.line("")
        _show_others(out, by, told["others"])

    out.result(told, human)


def _show_others(out: Output, by: str, told: dict[str, Any]) -> None:
    """What other jobs gained and lost, and how far the replays that say so are off."""
    if told["as_of_s"] is None:
        out.line("what other jobs gained or lost: no day has been replayed yet")
        return
    rows = []
    for row in [*told["rows"], told["total"]]:
        hours = [f"{row[name] / 3600:.2f}" for name in ("net_s", "gained_s", "lost_s", "error_s")]
        told_by = [str(row["gained"]), hours[1], str(row["lost"]), hours[2], hours[3], str(row["unsure"])]
        rows.append([printable(row["key"]), str(row["jobs"]), hours[0], *told_by])
    headings = [by.upper(), "OTHER JOBS", "NET HOURS", "GAINED BY", "GAINED", "LOST BY", "LOST"]
    headings += ["REPLAY IS OFF BY", "LIMIT NOT KNOWN"]
    out.table(headings, rows, right=frozenset(range(1, len(headings))))
    total = told["total"]
    if total["jobs"] and not total["says_something"]:
        out.line("the replays are off by more than the net hours: these say little")
    out.line(f"{told['days']} whole days (UTC) replayed, the last at {clock(told['as_of_s'])}; docs/web.md has how")
    if told["away_s"] >= 60 or told["unknown"] or told["left_out"]:
        away = f"{told['away_s'] / 3600:.1f} h without a poll"
        out.line(f"not known: {away}, {told['unknown']} ends, {told['left_out']} jobs that cannot be replayed")
    if told["limits"]:
        out.line(f"limits of accounts were not played: {printable(told['limits'])}")
    if told["unranked"]:
        out.line(f"{told['unranked']} days in the order of arrival: not all priorities are known")


def _row(row: dict[str, Any]) -> list[str]:
    hours = [f"{row[name] / 3600:.2f}" for name in ("saved_s", "earlier_s", "later_s", "spent_processor_s")]
    return [
        *(printable(row["key"]), str(row["jobs"]), hours[0], hours[1]),
        *(str(row["later"]), hours[2], hours[3], str(row["uncounted"])),
    ]


def add_to(app: typer.Typer) -> None:
    app.command()(report)
