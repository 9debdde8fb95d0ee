"""What squeue and sacct print of a job, field by field."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable

from ejbd.cli.links.rows import Row
from ejbd.cli.links.states import SHORT
from ejbd.wire.hostlists import fold

NONE = "(null)"
_ENDED = {"COMPLETED": "None", "FAILED": "NonZeroExitCode", "TIMEOUT": "TimeLimit"}  # Slurm's reasons of an end


def elapsed_s(row: Row) -> int:
    """Seconds since its start, until its end or now."""
    job = row.job
    return int((job["end_s"] or time.time()) - job["start_s"]) if job["start_s"] is not None else 0


def lasting(seconds: float, *, whole: bool = False) -> str:
    """Slurm's `M:SS`, `H:MM:SS`, `D-HH:MM:SS`; with `whole` always with hours (`00:00:05`)."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    if whole:
        return f"{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def limit(row: Row, *, whole: bool = False) -> str:
    seconds = row.job["walltime_s"]
    return lasting(seconds, whole=whole) if seconds else "UNLIMITED"


def moment(at_s: float | None, unknown: str = "N/A") -> str:
    """Local time, as Slurm writes it."""
    return unknown if at_s is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))


def start(row: Row, unknown: str = "N/A") -> str:
    """When it began, or is to begin at the latest."""
    job = row.job
    known = job["start_s"]
    if known is None and row.state == "PENDING":
        known = job["rigid_start_s"]
    return moment(known, unknown)


def end(row: Row, unknown: str = "N/A") -> str:
    """When it ended, or is expected to have ended."""
    job = row.job
    if job["end_s"] is None and job["start_s"] is None:
        return unknown
    return moment(job["end_s"] if job["end_s"] is not None else job["expected_completion_s"], unknown)


def nodes(row: Row) -> str:
    """`n[1-2]`; empty while it has none."""
    return fold(row.job["nodes"])


def reason(row: Row) -> str:
    """Why it is where it is; Slurm's words where it says the same."""
    if row.state == "PENDING" and row.job["held"]:
        return "JobHeldUser"
    if row.state in _ENDED:
        return _ENDED[row.state]
    return (row.job["reason"] or "None").partition("\n")[0]


def where(row: Row) -> str:
    """Its nodes; the reason of a job that has none now."""
    return f"({reason(row)})" if row.state in ("PENDING", "SUSPENDED") or not row.job["nodes"] else nodes(row)


def processors(row: Row) -> str:
    """As many as it asked for, however many it has now."""
    return str(row.job["processes"])


def exit_code(row: Row) -> str:
    return f"{row.job['exit_code'] or 0}:0"


def uid(row: Row) -> str:
    try:
        return str(pwd.getpwnam(row.job["user"]).pw_uid)
    except KeyError:
        return str(os.getuid())


FIELDS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "i": ("JOBID", lambda row: row.id),
    "A": ("JOBID", lambda row: row.number),
    "F": ("ARRAY_JOB_ID", lambda row: row.array),
    "K": ("ARRAY_TASK_ID", lambda row: "N/A" if row.index is None else row.index.strip("[]")),
    "t": ("ST", lambda row: SHORT[row.state]),
    "T": ("STATE", lambda row: row.state),
    "j": ("NAME", lambda row: row.job["name"]),
    "u": ("USER", lambda row: row.job["user"]),
    "U": ("UID", uid),
    "P": ("PARTITION", lambda row: row.job["queue"]),
    "C": ("CPUS", processors),
    "D": ("NODES", lambda row: str(len(row.job["nodes"]) or 1)),
    "M": ("TIME", lambda row: lasting(elapsed_s(row))),
    "l": ("TIME_LIMIT", limit),
    "L": (
        "TIME_LEFT",
        lambda row: lasting(row.job["walltime_s"] - elapsed_s(row)) if row.job["walltime_s"] else "UNLIMITED",
    ),
    "S": ("START_TIME", start),
    "e": ("END_TIME", end),
    "V": ("SUBMIT_TIME", lambda row: moment(row.job["submit_s"])),
    "N": ("NODELIST", nodes),
    "Y": ("SCHEDNODES", lambda row: NONE),
    "r": ("REASON", reason),
    "R": ("NODELIST(REASON)", where),
}
"""squeue's letters: the heading, and the value."""
