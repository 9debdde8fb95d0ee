"""Commands about jobs that are there."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ejbd.cli import exporting, following, showing
from ejbd.cli.chart import chart
from ejbd.cli.client import Client, LostConnection, segment
from ejbd.cli.options import AsJson, MaybeText, Quiet, Selector, client, output
from ejbd.cli.output import Mode, Output, colours, printable
from ejbd.errors import Code, EjbError

PAGE = 200


def status(
    context: typer.Context,
    job: Annotated[MaybeText, typer.Argument(metavar="[JOB]", help="One job; without it, a list of yours.")] = None,
    everybody: Annotated[bool, typer.Option("--all-users", "-a", help="Everybody's jobs (administrators).")] = False,
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="Only jobs in this state.")] = None,
    queue: Annotated[MaybeText, typer.Option("--queue", "-p", help="Only jobs of this queue.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Newest jobs that are shown.")] = 50,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show your jobs, or all about one."""
    out = output(as_json, quiet)
    daemon = client(context)
    if job is not None:
        found = daemon.get(_path(job))
        out.result(found, lambda: showing.job_detail(found, out), quiet=found["state"])
        return
    mine = None if everybody else "true"
    jobs: list[dict[str, Any]] = []
    before = None
    while len(jobs) < limit:
        count = min(PAGE, limit - len(jobs))
        page = daemon.get("/v1/jobs", state=state or None, queue=queue, mine=mine, limit=count, before=before)
        jobs += page["jobs"]
        before = page["next"]
        if before is None:
            break
    if not jobs:
        out.note("no such job" if state or queue else "no job yet")
    out.result(
        {"jobs": jobs},
        lambda: showing.job_table(jobs, out, users=everybody) if jobs else None,
        quiet="\n".join(one["id"] for one in jobs) if jobs else None,
    )


def explain(context: typer.Context, job: Selector = "last", as_json: AsJson = False) -> None:
    """Show why a job is where it is: every decision with its reasons."""
    out = output(as_json, False)
    found = client(context).get(_path(job, "/explain"))
    out.result(found, lambda: showing.explanation(found, out))


def events(
    context: typer.Context,
    job: Selector = "last",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
    export: Annotated[
        MaybeText, typer.Option("--export", metavar="FILE", help="Write the log of all your jobs (- is stdout).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened to a job; with --export, write what happened to all of them, for `ejb sim replay`."""
    out = output(as_json, False)
    daemon = client(context)
    if export is not None:
        count = exporting.export(daemon, export)
        if export != "-":
            out.result({"file": export, "events": count}, lambda: out.line(f"wrote {count} events to {export}"))
        return
    if not follow:
        found = daemon.get(_path(job, "/events"), limit=10_000)
        out.result(found, lambda: out.lines(map(showing.event_line, found["events"])))
        return
    id = daemon.get(_path(job))["id"]
    try:
        for event in following.events(daemon, id, out):
            out.result(event, lambda event=event: out.line(showing.event_line(event)))  # type: ignore[misc]
    except KeyboardInterrupt:
        raise typer.Exit(following.left_running(out, id)) from None


def timeline(
    context: typer.Context,
    job: Selector = "last",
    svg: Annotated[Path | None, typer.Option("--svg", help="Write a picture to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a job lived: phases, processors, subjobs."""
    out = output(as_json, False)
    daemon = client(context)
    if svg is not None:
        picture = daemon.request("GET", _path(job, "/timeline"), query={"format": "svg"}).body
        try:
            svg.write_bytes(picture)
        except OSError as error:
            raise EjbError(Code.INVALID, f"cannot write the picture: {error.strerror}", where=str(svg)) from None
        out.result({"svg": str(svg)}, lambda: out.line(f"wrote {svg}"))
        return
    found = daemon.get(_path(job, "/timeline"))
    out.result(found, lambda: out.lines(_lines(found)))


def watch(
    context: typer.Context,
    job: Selector = "last",
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Watch a job's timeline live until it has ended. Without a terminal: its events, line by line."""
    out = output(False, False)
    daemon = client(context)
    id = daemon.get(_path(job))["id"]
    try:
        if sys.stdout.isatty():
            _watch_live(daemon, id, interval)
        else:
            for event in following.events(daemon, id, out):
                out.line(showing.event_line(event))
            out.lines(_lines(daemon.get(_path(id, "/timeline"))))
        detail = daemon.get(_path(id))
    except KeyboardInterrupt:
        raise typer.Exit(following.left_running(out, id)) from None
    out.line(showing.outcome(detail))


def logs(
    context: typer.Context,
    job: Selector = "last",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Standard error instead of standard output.")] = False,
) -> None:
    """Print a job's output."""
    out = output(False, False)
    daemon = client(context)
    id = daemon.get(_path(job))["id"]
    stream = "stderr" if stderr else "stdout"
    offset = 0
    try:
        while True:
            try:
                if follow:
                    for data in daemon.chunks(_path(id, "/logs"), query=_log_query(stream, offset, follow="true")):
                        offset += _put(data)
                    if daemon.get(_path(id))["end_s"] is not None:
                        return
                    continue  # the daemon was stopped in good order and is coming back
                answer = daemon.request("GET", _path(id, "/logs"), query=_log_query(stream, offset))
                offset += _put(answer.body)
                if not answer.body:
                    return
            except LostConnection:
                out.note("the daemon is away; waiting for it")
                time.sleep(following.AGAIN_S)
    except KeyboardInterrupt:
        raise typer.Exit(following.left_running(out, id)) from None


def cancel(
    context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...")], quiet: Quiet = False
) -> None:
    """Cancel jobs."""
    _each(context, jobs, "cancel", "cancelled", quiet)


def hold(
    context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...")], quiet: Quiet = False
) -> None:
    """Keep jobs that have not started from starting."""
    _each(context, jobs, "hold", "held", quiet)


def release(
    context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...")], quiet: Quiet = False
) -> None:
    """Let held jobs go on."""
    _each(context, jobs, "release", "released", quiet)


def _each(context: typer.Context, jobs: list[str], action: str, done: str, quiet: bool) -> None:
    """Do it to every job that it can be done to; the first error decides the exit code."""
    out = output(False, quiet)
    daemon = client(context)
    worst = 0
    for job in jobs:
        try:
            id = daemon.request("POST", _path(job, f"/{action}")).json()["id"]
            if out.mode is Mode.HUMAN:
                out.line(f"job {id} {done}")
        except EjbError as error:
            worst = worst or out.failure(error)
            if error.code is Code.UNREACHABLE:
                break
    if worst:
        raise typer.Exit(worst)


def _watch_live(daemon: Client, id: str, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    found = daemon.get(_path(id, "/timeline"))
    with Live(console=console, auto_refresh=False) as live:
        while True:
            text = Text.from_ansi("\n".join(_lines(found, console.width)))
            text.no_wrap = True
            live.update(text, refresh=True)
            if found["end_s"] is not None:
                return
            time.sleep(interval)
            try:
                found = daemon.get(_path(id, "/timeline"))
            except EjbError as error:
                if error.code is not Code.UNREACHABLE:
                    raise
                live.update(Text("the daemon is away; the job goes on"), refresh=True)


def _lines(found: dict[str, Any], width: int | None = None) -> list[str]:
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    found = {**found, "name": printable(found["name"])}
    columns = width or shutil.get_terminal_size((100, 24)).columns
    return chart(found, columns, colour=colours(), plain=encoding != "utf8")


def _log_query(stream: str, offset: int, **more: str) -> dict[str, Any]:
    return {"stream": stream, "offset": offset, **more}


def _put(data: bytes) -> int:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return len(data)


def _path(job: str, rest: str = "") -> str:
    return f"/v1/jobs/{segment(job)}{rest}"


__all__ = ["Output", "cancel", "events", "explain", "hold", "logs", "release", "status", "timeline", "watch"]
