"""The columns of `ejb status`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ejbd.cli.output import Output
from ejbd.cli.show.words import clock, duration, elapsed
from ejbd.errors import Code, EjbError
from ejbd.wire.payloads import JobView
from ejbd.wire.states import TERMINAL_JOB, JobState

Job = JobView


@dataclass(frozen=True, slots=True)
class Column:
    """What stands above it, what stands in it, and whether that is aligned to the right."""

    heading: str
    cell: Callable[[Job], str]
    right: bool = False


def describe_state(job: Mapping[str, Any]) -> str:
    """Its state; what its user has cancelled is that at once, though it may be ending still."""
    cancelled = job.get("final_state") == JobState.CANCELLED
    return f"{JobState.CANCELLED} ({job['state']})" if cancelled else str(job["state"])


def _state(job: Job) -> str:
    counts = job.get("elements")
    of = f": {of_array(counts)}" if counts and job["state"] not in TERMINAL_JOB else ""
    return f"{describe_state(job)}{'' if job['elastic'] else ' (rigid)'}{' (held)' if job['held'] else ''}{of}"


def of_array(counts: dict[str, int]) -> str:
    """How many elements of an array are in each state, in a few words."""
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _processors(job: Job) -> str:
    return str(job["processes"]) if job["state"] in TERMINAL_JOB else f"{job['processors']}/{job['processes']}"


def _limit(job: Job) -> str:
    return duration(job["walltime_s"]) if job["walltime_s"] else "-"


def _exit(job: Job) -> str:
    return "-" if job["exit_code"] is None else str(job["exit_code"])


def charged(processor_s: float | None) -> str:
    """Processor-seconds as accounts list them (CPUTimeRAW): whole ones, `-` where they are not known."""
    return "-" if processor_s is None else f"{processor_s:.0f}"


COLUMNS: dict[str, Column] = {
    "id": Column("ID", lambda job: str(job["id"])),
    "name": Column("NAME", lambda job: str(job["name"])[:24]),
    "user": Column("USER", lambda job: str(job["user"])),
    "queue": Column("QUEUE", lambda job: str(job["queue"])),
    "state": Column("STATE", _state),
    "procs": Column("PROCS", _processors, right=True),
    "done": Column("DONE", lambda job: f"{job['progress']:.0%}", right=True),
    "time": Column("TIME", lambda job: duration(elapsed(job)), right=True),
    "limit": Column("LIMIT", _limit, right=True),
    "engine": Column("ENGINE", lambda job: str(job["engine"])),
    "exit": Column("EXIT", _exit, right=True),
    "submitted": Column("SUBMITTED", lambda job: clock(job["submit_s"])),
    "started": Column("STARTED", lambda job: clock(job["start_s"])),
    "ended": Column("ENDED", lambda job: clock(job["end_s"])),
    "expected": Column("EXPECTED", lambda job: clock(job["expected_completion_s"])),
    "rigid": Column("RIGID START", lambda job: clock(job["rigid_start_s"])),
    "batch": Column("BATCH JOBS", lambda job: ",".join(job.get("batch_ids") or ()) or "-"),
    "charged": Column("CHARGED", lambda job: charged(job.get("processor_s")), right=True),
    "reason": Column("REASON", lambda job: str(job["reason"])[:60]),
}
NAMES = tuple(COLUMNS)
_USUAL = ("id", "name", "user", "queue", "state", "procs", "done", "time", "limit", "reason")


def chosen(names: str | None, *, users: bool) -> list[Column]:
    """The columns of a comma-separated list, or the usual ones. Raises EjbError for a name that is none."""
    if names is None:
        return [COLUMNS[name] for name in _USUAL if users or name != "user"]
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in COLUMNS:
            hint = f"there are: {', '.join(NAMES)}"
            raise EjbError(Code.INVALID, f"there is no column {name!r}", where="--columns", hint=hint)
    if not wanted:
        raise EjbError(Code.INVALID, "no column is given", where="--columns", hint=f"there are: {', '.join(NAMES)}")
    return [COLUMNS[name] for name in wanted]


def table(jobs: Sequence[Job], columns: Sequence[Column], out: Output, *, heading: bool) -> None:
    """Jobs, a row each."""
    rows = [[column.cell(job) for column in columns] for job in jobs]
    right = frozenset(index for index, column in enumerate(columns) if column.right)
    out.table([column.heading for column in columns] if heading else None, rows, right=right)
