"""Staying with a job: its events, one after the other, over restarts of the daemon."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from ejbd.cli.client import Client, LostConnection, segment
from ejbd.cli.output import Output
from ejbd.errors import Code, EjbError

AGAIN_S = 1.0
# What --wait returns where the job has no exit code of its own.
_EXIT_OF_STATE = {"completed": 0, "failed": 1, "timeout": 124, "cancelled": 125}


def events(client: Client, job_id: str, output: Output) -> Iterator[dict[str, Any]]:
    """A job's events until its end. A daemon that goes away is waited for: the job lives on without it."""
    after: int | None = None
    away = False
    while True:
        try:
            kind, data = "", ""
            for line in client.stream(f"/v1/jobs/{segment(job_id)}/events/stream", after=after):
                if away:
                    output.note("the daemon is back")
                    away = False
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    data = value
                elif not name and kind == "end":
                    return
                elif not name and data:
                    event: dict[str, Any] = json.loads(data)
                    after = event["id"]
                    kind, data = "", ""
                    yield event
        except LostConnection:
            pass
        except EjbError as error:
            if error.code not in (Code.UNREACHABLE, Code.STORE):
                raise
        if not away:
            output.note("the daemon is away; the job goes on, and this waits for the daemon")
            away = True
        time.sleep(AGAIN_S)


def exit_code(job: dict[str, Any]) -> int:
    """The exit code of a job that has ended: its own, where it has one."""
    code = job["exit_code"]
    if code is not None and (code != 0 or job["state"] == "completed"):
        return int(code) & 0xFF
    return _EXIT_OF_STATE.get(job["state"], 1)


def left_running(output: Output, *job_ids: str) -> int:
    """What Ctrl-C means while jobs are watched: nothing to the jobs."""
    which = f"job {job_ids[0]} goes on" if len(job_ids) == 1 else f"{len(job_ids)} jobs go on"
    output.note(f"{which}; `ejb cancel {' '.join(job_ids)}` would end {'it' if len(job_ids) == 1 else 'them'}")
    return 130
