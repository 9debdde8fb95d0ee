"""What Slurm calls the states of jobs."""

from __future__ import annotations

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
    passed through was put back into the queue, where it is pending."""
    state = JobState(job["state"])
    kept = state is JobState.WAITING and job["start_s"] is not None and job["elastic"]
    return SUSPENDED if kept else _WORDS[state]


def word_of_state(state: JobState) -> str:
    return _WORDS[state]


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
