"""Commands about jobs that are there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ejbd.cli.options import LAST, AsJson, MaybeText, Quiet, Selectors, client, output
from ejbd.cli.output import Mode, Output, ascii_only, colours, printable, width
from ejbd.cli.selecting import ids, path
from ejbd.cli.show import exporting, following
from ejbd.cli.show import jobs as showing
from ejbd.cli.show import moves as showing_moves
from ejbd.cli.show.chart import chart
from ejbd.client.client import Client
from ejbd.client.messages import AGAIN_S, LostConnection
from ejbd.errors import Code, EjbError


def explain(
    context: typer.Context,
    jobs: Selectors = LAST,
    moves: Annotated[
        bool, typer.Option("--moves", help="Show every start, move and end of the ranks instead, hop by hop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show why jobs are where they are: every decision with its reasons. With --moves, show how long moves took."""
    out = output(as_json, False)
    daemon = client(context)
    if moves:
        _show_each(
            out,
            ids(daemon, jobs),
            lambda job: daemon.get(path(job, "/moves")),
            lambda found: showing_moves.moves(found, out),
        )
        return
    _show_each(
        out,
        ids(daemon, jobs),
        lambda job: daemon.get(path(job, "/explain")),
        lambda found: showing.explanation(found, out),
    )


def events(
    context: typer.Context,
    jobs: Selectors = LAST,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
    export: Annotated[
        MaybeText, typer.Option("--export", metavar="FILE", help="Write the log of all your jobs (- is stdout).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened to jobs. With --export, write what happened to all of them, for `ejb sim replay`."""
    out = output(as_json, False)
    daemon = client(context)
    if export is not None:
        count = exporting.export(daemon, export)
        if export != "-":
            out.result({"file": export, "events": count}, lambda: out.line(f"wrote {count} events to {export}"))
        return
    if not follow:
        _show_each(
            out,
            ids(daemon, jobs),
            lambda job: daemon.get(path(job, "/events"), limit=10_000),
            lambda found: out.lines(map(showing.event_line, found["events"])),
        )
        return
    id = _the_one(daemon, jobs, "--follow")
    try:
        for event in following.events(daemon, id, out):
            out.result(event, lambda event=event: out.line(showing.event_line(event)))  # type: ignore[misc]
    except KeyboardInterrupt:
        raise typer.Exit(following.left_running(out, id)) from None


def timeline(
    context: typer.Context,
    jobs: Selectors = LAST,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write a picture to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how jobs lived: phases, processors, subjobs."""
    out = output(as_json, False)
    daemon = client(context)
    if svg is not None:
        id = _the_one(daemon, jobs, "--svg")
        picture = daemon.request("GET", path(id, "/timeline"), query={"format": "svg"}).body
        try:
            svg.write_bytes(picture)
        except OSError as error:
            raise EjbError(Code.INVALID, f"cannot write the picture: {error.strerror}", where=str(svg)) from None
        out.result({"svg": str(svg)}, lambda: out.line(f"wrote {svg}"))
        return
    _show_each(
        out,
        ids(daemon, jobs),
        lambda job: daemon.get(path(job, "/timeline")),
        lambda found: out.lines(_lines(found)),
        headed=False,  # a chart names its job
    )


def watch(
    context: typer.Context,
    jobs: Selectors = LAST,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Ask again after so many seconds.")] = 1.0,
) -> None:
    """Watch the timelines of jobs live until they have ended. Without a terminal, print their events, line by line."""
    out = output(False, False)
    daemon = client(context)
    watched = [daemon.get(path(job))["id"] for job in ids(daemon, jobs)]
    try:
        if sys.stdout.isatty():
            _watch_live(daemon, watched, interval)
        else:
            for id in watched:
                for event in following.events(daemon, id, out):
                    out.line(showing.event_line(event))
                out.lines(_lines(daemon.get(path(id, "/timeline"))))
        details = [daemon.get(path(id)) for id in watched]
    except KeyboardInterrupt:
        raise typer.Exit(following.left_running(out, *watched)) from None
    for detail in details:
        out.line(showing.outcome(detail))


def logs(
    context: typer.Context,
    jobs: Selectors = LAST,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Print standard error instead of standard output.")] = False,
) -> None:
    """Print the output of jobs, with a heading each where they are several."""
    out = output(False, False)
    daemon = client(context)
    stream = "stderr" if stderr else "stdout"
    chosen = [_the_one(daemon, jobs, "--follow")] if follow else ids(daemon, jobs)
    for job in chosen:
        id = daemon.get(path(job))["id"]
        if len(chosen) > 1:
            out.line(f"==> {id} <==")
        try:
            _logs(daemon, id, stream, follow, out)
        except KeyboardInterrupt:
            raise typer.Exit(following.left_running(out, id)) from None


def _logs(daemon: Client, id: str, stream: str, follow: bool, out: Output) -> None:
    offset = 0
    while True:
        try:
            if follow:
                for data in daemon.chunks(path(id, "/logs"), query=_log_query(stream, offset, follow="true")):
                    offset += _put(data)
                if daemon.get(path(id))["end_s"] is not None:
                    return
                continue  # the daemon was stopped in good order and is coming back
            answer = daemon.request("GET", path(id, "/logs"), query=_log_query(stream, offset))
            offset += _put(answer.body)
            if not answer.body:
                return
        except LostConnection:
            out.note("the daemon is away; waiting for it")
            time.sleep(AGAIN_S)


def cancel(context: typer.Context, jobs: Selectors, quiet: Quiet = False) -> None:
    """Cancel jobs."""
    _steer(context, jobs, "cancel", "cancelled", quiet)


def hold(context: typer.Context, jobs: Selectors, quiet: Quiet = False) -> None:
    """Hold back jobs that have not started yet."""
    _steer(context, jobs, "hold", "held", quiet)


def release(context: typer.Context, jobs: Selectors, quiet: Quiet = False) -> None:
    """Let held jobs go on."""
    _steer(context, jobs, "release", "released", quiet)


def _steer(context: typer.Context, words: list[str], action: str, done: str, quiet: bool) -> None:
    """Do it to every job that it can be done to; the first error decides the exit code."""
    out = output(False, quiet)
    daemon = client(context)
    worst = 0
    for word in words:
        try:
            chosen = ids(daemon, [word], alive=True)
        except EjbError as error:
            worst = worst or out.failure(error)
            continue
        if not chosen:
            out.note(f"{word}: no job that lives")
        for job in chosen:
            try:
                id = daemon.request("POST", path(job, f"/{action}")).json()["id"]
                if out.mode is Mode.HUMAN:
                    _, some, elements = job.partition("_[")
                    out.line(f"job {id}{some}{elements} {done}")
            except EjbError as error:
                worst = worst or out.failure(error)
                if error.code is Code.UNREACHABLE:
                    raise typer.Exit(worst) from None
    if worst:
        raise typer.Exit(worst)


def _show_each(
    out: Output,
    jobs: list[str],
    look: Callable[[str], dict[str, Any]],
    human: Callable[[dict[str, Any]], None],
    *,
    headed: bool = True,
) -> None:
    """What there is about each job: the one document, or for several a list under `jobs`."""
    if not jobs:
        out.note("no such job")
    if len(jobs) == 1:
        found = look(jobs[0])
        out.result(found, lambda: human(found))
        return
    documents = []
    for index, job in enumerate(jobs):
        found = look(job)
        documents.append({"id": job, **found})
        if out.mode is Mode.HUMAN and headed:
            out.line(f"==> {job} <==")
        elif out.mode is Mode.HUMAN and index:
            out.line()
        out.told(lambda found=found: human(found))  # type: ignore[misc]
    out.document({"jobs": documents})


def _the_one(daemon: Client, words: list[str], option: str) -> str:
    """The id of the one job that is named. Raises EjbError where there are several."""
    named = ids(daemon, words)
    if len(named) != 1:
        raise EjbError(Code.INVALID, f"this is for one job, and {len(named)} are named", where=option)
    return str(daemon.get(path(named[0]))["id"])


def _watch_live(daemon: Client, jobs: list[str], interval: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    found = [daemon.get(path(job, "/timeline")) for job in jobs]
    with Live(console=console, auto_refresh=False) as live:
        while True:
            text = Text.from_ansi("\n\n".join("\n".join(_lines(one, console.width)) for one in found))
            text.no_wrap = True
            live.update(text, refresh=True)
            if all(one["end_s"] is not None for one in found):
                return
            time.sleep(interval)
            try:
                found = [
                    one if one["end_s"] is not None else daemon.get(path(job, "/timeline"))
                    for job, one in zip(jobs, found, strict=True)
                ]
            except EjbError as error:
                if error.code is not Code.UNREACHABLE:
                    raise
                live.update(Text("the daemon is away; the job goes on"), refresh=True)


def _lines(found: dict[str, Any], columns: int | None = None) -> list[str]:
    found = {**found, "name": printable(found["name"])}
    return chart(found, columns or width(), colour=colours(), plain=ascii_only())


def _log_query(stream: str, offset: int, **more: str) -> dict[str, Any]:
    return {"stream": stream, "offset": offset, **more}


def _put(data: bytes) -> int:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return len(data)


def add_to(app: typer.Typer) -> None:
    for command in (watch, explain, events, timeline, logs, cancel, hold, release):
        app.command()(command)
