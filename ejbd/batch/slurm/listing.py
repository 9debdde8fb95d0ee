"""`squeue`, one of the two commands of a poll (`nodes.py` has the other).

Job names, comments and the like are free text of other people and may hold any character. They and the rows are
therefore kept apart by a separator that is drawn anew for each call. It cannot be in a name beforehand, so that a name
can neither hide a row nor forge one. What Slurm or an administrator writes is kept apart by bars, and a row with one
bar too many is not read.

A site has tens of thousands of rows, of which few change from poll to poll: what a row meant is remembered by its text.
The owner of a job is told as a number, since squeue looks each name up anew.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ejbd.batch.base import tag_in
from ejbd.batch.slurm import states
from ejbd.batch.slurm.limits import is_limit, kind_of
from ejbd.core.view import BatchJobView, BatchState
from ejbd.core.walltime import parse_listed_walltime

_JOB_ID = re.compile(r"[0-9]+([_+][0-9]+|_\[[^\]\n]*\])?", re.ASCII)


def new_separator() -> str:
    """Letters only behind the bar: Slurm would read a digit as a field's width."""
    return "|" + "".join(secrets.choice("bcdfghjkmnpqrstvwxyz") for _ in range(10)) + "|"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of a listing, with what only sorting and looking up need."""

    view: BatchJobView
    uid: int
    priority: int
    number: int  # of the job, or of the array that it is of


Memory = dict[str, tuple[float, JobRow]]
"""Rows of the listing before: what they meant, and until when (epoch seconds) the same text means the same."""


@dataclass(frozen=True, slots=True)
class Squeue:
    """All jobs, those that ended lately included, with exit codes. `ids` and `user` narrow it down.

    Jobs of other users than `own_uid` are another's. None: the daemon serves all users, and only root's jobs are.
    """

    separator: str
    ids: tuple[str, ...] = ()
    user: str = ""
    own_uid: int | None = field(default_factory=os.geteuid)
    timeout_s: float = 20.0

    PLAIN = (
        *("JobArrayID", "State", "UserID", "Partition", "NumCPUs", "TimeLimit", "SubmitTime", "StartTime", "EndTime"),
        *("PriorityLong", "NodeList", "SchedNodes", "exit_code", "Account", "QOS"),
    )
    FREE = ("Reason", "Name", "Comment")

    @property
    def row_end(self) -> str:
        """Not the separator alone: a name that begins with a line break would look like the next row."""
        return self.separator + self.separator[1:]

    def argv(self) -> list[str]:
        narrowed = []
        if self.ids:
            narrowed.append("--jobs=" + ",".join(self.ids))
        if self.user:
            narrowed.append("--user=" + self.user)
        ends = ["|"] * (len(self.PLAIN) - 1) + [self.separator] * len(self.FREE) + [self.row_end]
        columns = ",".join(f"{name}:{end}" for name, end in zip(self.PLAIN + self.FREE, ends, strict=True))
        return ["squeue", "--noheader", "--states=all", *narrowed, f"--Format={columns}"]

    def parse(self, text: str, now_s: float, known: Memory | None = None) -> tuple[list[JobRow], int]:
        """The jobs, and the number of rows that could not be read. `now_s`: only later planned starts count. `known`:
        of the listing before, which becomes that of this one."""
        *rows, rest = text.split(self.row_end)
        found, unparsed = [], int(bool(rest.strip("\n")))
        before, after = known or {}, Memory()
        for at, row in enumerate(rows):
            key = row.replace(self.separator, "\0")  # the separator is another one each time
            until_s, job = before.get(key, (now_s, None))
            if job is None or now_s >= until_s:
                try:
                    if at and not row.startswith("\n"):
                        raise ValueError("torn row")
                    until_s, job = _job(row.removeprefix("\n").split(self.separator), now_s, self.own_uid)
                except ValueError:
                    unparsed += 1
                    continue
            after[key] = until_s, job
            found.append(job)
        if known is not None:
            known.clear()
            known.update(after)
        return found, unparsed


OVERDUE_S = 60.0  # twice Slurm's own interval between two passes over the whole queue
NEVER_S = 365 * 86400.0  # a start that lies further ahead is a lock on a job that stands by, or Slurm's word for never
WAITS_FOR_ROOM = ("None", "Priority", "Resources", "")


def _job(fields: Sequence[str], now_s: float, own_uid: int | None) -> tuple[float, JobRow]:
    """A row, and until when it means the same. Raises ValueError."""
    plain, *free = fields
    row = dict(zip(Squeue.PLAIN + Squeue.FREE, (*plain.split("|"), *free), strict=True))
    id, reason = row["JobArrayID"].strip(), row["Reason"].strip()
    if not _JOB_ID.fullmatch(id):
        raise ValueError(f"{id!r} is not a job id")
    state = states.job_state(row["State"], reason)
    waiting = state in (BatchState.PENDING, BatchState.HELD)
    start = states.epoch_s(row["StartTime"])
    end = states.epoch_s(row["EndTime"])
    # A start that is due stays planned until it happens, or turns out to be forgotten.
    due = start is not None and now_s - OVERDUE_S < start < now_s + NEVER_S
    # Around nodes that do not answer Slurm plans for a time far ahead, and they may answer again in a second.
    away = "UnavailableNodes" in reason
    planned = start if state is BatchState.PENDING and due and not away else None
    until_s = math.inf if start is None or not waiting else start + OVERDUE_S if due else now_s
    uid = int(row["UserID"])
    code, signal = states.exit_of(row["exit_code"]) if state.ended else (None, None)
    view = BatchJobView(
        id=id,
        name=row["Name"],
        user=_user(uid),
        queue=row["Partition"],
        state=state,
        processors=states.count(row["NumCPUs"]),
        walltime_s=parse_listed_walltime(row["TimeLimit"]),
        submit_s=states.epoch_s(row["SubmitTime"]),
        start_s=None if waiting else start,
        end_s=None if waiting else end,
        nodes=() if waiting else states.hosts(row["NodeList"]),
        planned_start_s=planned,
        planned_nodes=states.hosts(row["SchedNodes"]) if planned is not None else (),
        exit_code=code,
        exit_signal=signal,
        reason="" if reason == "None" else reason,
        blocked=state is BatchState.PENDING and reason not in WAITS_FOR_ROOM,
        tag=tag_in(row["Comment"]),
        foreign=uid == 0 if own_uid is None else uid != own_uid,
        account=_interned(row["Account"]),
        qos=_interned(row["QOS"]),
        limited=state is BatchState.PENDING and is_limit(reason),
        limited_by=kind_of(reason) if state is BatchState.PENDING else None,
        priority=int(row["PriorityLong"]) if state is BatchState.PENDING else 0,
    )
    return until_s, JobRow(view, uid, int(row["PriorityLong"]), int(id.partition("_")[0].partition("+")[0]))


@lru_cache(maxsize=states.LISTED)
def _user(uid: int) -> str:
    """As squeue names the owner of a job: by the number where there is no such user here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _interned(text: str) -> str:
    """One string for the many jobs of an account; "" where Slurm names none."""
    word = sys.intern(text.strip())
    return "" if word in ("N/A", "(null)", "n/a") else word


def in_order(jobs: Sequence[JobRow], tiers: dict[str, int]) -> tuple[BatchJobView, ...]:
    """The views, pending jobs in the order in which Slurm considers them: partition tier, priority, age."""
    of_queues = {  # a job may name several
        queues: max((tiers.get(name, 0) for name in queues.split(",")), default=0)
        for queues in {row.view.queue for row in jobs}
    }

    def key(row: JobRow) -> tuple[int, int, int]:
        return -of_queues[row.view.queue], -row.priority, row.number

    return tuple(row.view for row in sorted(jobs, key=key))
