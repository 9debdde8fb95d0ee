"""Staying with a job: its events, one after the other, over restarts of the daemon."""

from __future__ import annotations

from collections.abc import Iterator

from ejbd.cli.output import Output
from ejbd.client.client import Client
from ejbd.wire.payloads import EventView


def events(client: Client, job_id: str, output: Output) -> Iterator[EventView]:
    """A job's events until its end. A daemon that goes away is waited for: the job lives on without it."""

    def away(gone: bool) -> None:
        say = "the daemon is away; the job goes on, and this waits for the daemon" if gone else "the daemon is back"
        output.note(say)

    return client.events(job_id, away=away)


def left_running(output: Output, *job_ids: str) -> int:
    """What Ctrl-C means while jobs are watched: nothing to the jobs."""
    which = f"job {job_ids[0]} goes on" if len(job_ids) == 1 else f"{len(job_ids)} jobs go on"
    output.note(f"{which}; `ejb cancel {' '.join(job_ids)}` would end {'it' if len(job_ids) == 1 else 'them'}")
    return 130
