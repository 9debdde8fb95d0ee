"""`ejb wait`: until jobs have ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from ejbd.cli.options import AsJson, Quiet, Selectors, client, output
from ejbd.cli.selecting import ids, path
from ejbd.cli.show import following
from ejbd.cli.show import jobs as showing
from ejbd.client.outcome import exit_code
from ejbd.errors import Code, EjbError
from ejbd.wire.payloads import JobDetail


class _Overdue(Exception):
    """The time that was given is over."""


def wait(
    context: typer.Context,
    jobs: Selectors,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Wait no longer than this.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Wait until jobs have ended; exit as the first that did not complete (0: all did)."""
    out = output(as_json, quiet)
    daemon = client(context)
    ended: list[JobDetail] = []
    wanted = [daemon.get(path(job))["id"] for job in ids(daemon, jobs)]
    waiting = list(dict.fromkeys(wanted))
    try:
        with _at_most(timeout_s):
            for id in list(waiting):
                for _ in following.events(daemon, id, out):
                    pass
                found: JobDetail = daemon.get(path(id))
                ended.append(found)
                waiting.remove(id)
                out.told(lambda found=found: out.line(showing.outcome(found)), quiet=found["state"])  # type: ignore[misc]
    except KeyboardInterrupt:
        raise typer.Exit(following.left_running(out, *waiting)) from None
    except _Overdue:
        which = f"job {waiting[0]} has" if len(waiting) == 1 else f"{len(waiting)} jobs have"
        message = f"{which} not ended after {timeout_s:g} s"
        raise EjbError(Code.CONFLICT, message, transient=True, details={"jobs": waiting}) from None
    out.document({"jobs": ended})
    codes = [exit_code(found) for found in ended]
    raise typer.Exit(next((code for code in codes if code), 0))


@contextmanager
def _at_most(seconds: float | None) -> Iterator[None]:
    """Raises _Overdue in here after `seconds`, whatever is waited for."""

    def over(number: int, frame: FrameType | None) -> None:
        raise _Overdue

    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def add_to(app: typer.Typer) -> None:
    app.command()(wait)
