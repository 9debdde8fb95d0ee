"""What Slurm calls the states of jobs."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterable

from ejbd.errors import Code, EjbError
from ejbd.wire.payloads import JobView
from ejbd.wire.states import JobState

_WORDS = {
    JobState.RECEIVED: "PENDING",
    JobState.WAITING: "PENDING",
    JobState.RUNNING: "RUNNING",
    JobState.ENDING: "COMPLETING",
    JobState.UNKNOWN: "COMPLETING",
    JobState.COMPLETED: "COMPLETED",
    JobState.FAILED: "FAILED",
    JobState.TIMEOUT: "TIMEOUT",
    JobState.CANCELLED: "CANCELLED",
}
SUSPENDED = "SUSPENDED"
_BY = re.compile(r"cancelled by (\S+)")
SHORT = {
    "PENDING": "PD", "RUNNING": "R", SUSPENDED: "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F",
    "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM", "COMPLETING": "CG", "CONFIGURING": "CF", "RESIZING": "RS", "RESV_DEL_HOLD": "RD",
    "REQUEUED": "RQ", "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "REVOKED": "RV", "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip
_OVER = frozenset({
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
    "REVOKED",
})  # fmt: skip
LIVING = frozenset(SHORT) - _OVER


def word_of(job: JobView) -> str:
    """The state of a job. An elastic one that has begun and waits again, its work kept, is suspended. One that is
    passed through was put back into the queue, where it is pending.

    What is cancelled before it began has nothing to complete.
    """
    state = JobState(job["state"])
    if state is JobState.ENDING and job["start_s"] is None:
        state = JobState(job["final_state"] or state)
    kept = state is JobState.WAITING and job["start_s"] is not None and job["elastic"]
    return SUSPENDED if kept else _WORDS[state]


def word_of_state(state: JobState) -> str:
    return _WORDS[state]


def word_recorded(job: JobView, word: str) -> str:
    """The same as accounts have it: what was cancelled was so from then on, and by which user, by number."""
    if JobState.CANCELLED not in (job["state"], job["final_state"]) or word not in ("COMPLETING", "CANCELLED"):
        return word
    by = _BY.match(job["reason"])
    try:
        return f"CANCELLED by {pwd.getpwnam(by[1] if by else job['user']).pw_uid}"
    except KeyError:
        return "CANCELLED"


def read(words: Iterable[str], where: str) -> frozenset[str] | None:
    """The states that are asked for, in full; None: all. Raises EjbError (INVALID) for a word that is none."""
    found: set[str] = set()
    of_short = {short: word for word, short in SHORT.items()}
    for given in words:
        word = given.upper()
        if word == "ALL":
            return None
        if word not in SHORT and word not in of_short:
            hint = f"all, or {', '.join([*SHORT, *SHORT.values()])}"
            raise EjbError(Code.INVALID, f"Invalid job state specified: {given}", where=where, hint=hint)
        found.add(of_short.get(word, word))
    return frozenset(found)
