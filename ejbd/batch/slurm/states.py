"""Slurm's words for states, exits and times, and what they mean here."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from ejbd.core.view import BatchState

_STATES = {
    "PENDING": BatchState.PENDING,
    "REQUEUE_HOLD": BatchState.HELD,
    "SPECIAL_EXIT": BatchState.HELD,
    "RESV_DEL_HOLD": BatchState.HELD,
    "RUNNING": BatchState.RUNNING,
    "CONFIGURING": BatchState.RUNNING,  # its nodes boot, but they are given out
    "RESIZING": BatchState.RUNNING,
    "SIGNALING": BatchState.RUNNING,
    "SUSPENDED": BatchState.SUSPENDED,
    "STOPPED": BatchState.SUSPENDED,
    "COMPLETING": BatchState.ENDING,
    "STAGE_OUT": BatchState.ENDING,
    "REQUEUED": BatchState.ENDING,  # still completing; PENDING comes next
    "REQUEUE_FED": BatchState.ENDING,
    "COMPLETED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
    "OUT_OF_MEMORY": BatchState.FAILED,
    "TIMEOUT": BatchState.TIMEOUT,
    "DEADLINE": BatchState.TIMEOUT,
    "CANCELLED": BatchState.CANCELLED,
    "REVOKED": BatchState.CANCELLED,
    "NODE_FAIL": BatchState.NODE_FAIL,
    "BOOT_FAIL": BatchState.NODE_FAIL,
    "PREEMPTED": BatchState.PREEMPTED,
}

# Flags behind a node's state, of which each keeps jobs from starting there now: not responding, powered down, powering
# up or down, pending power-down, reserved for maintenance, reboot wanted or issued. `-` (planned by backfill) does not.
_NODE_FLAGS = "*~#!%$@^"
_NODE_USABLE = frozenset({"idle", "mixed", "allocated", "planned", "completing"})
_NOTHING = frozenset({"", "(null)", "n/a", "none", "none assigned", "unknown"})


def job_state(word: str, reason: str = "") -> BatchState:
    """Slurm's job state (long form, `CANCELLED by 0` of sacct included). A word that is not known is UNKNOWN."""
    words = word.split()
    state = _STATES.get(words[0].upper().rstrip("+"), BatchState.UNKNOWN) if words else BatchState.UNKNOWN
    if state is BatchState.PENDING and reason.startswith("JobHeld"):
        return BatchState.HELD
    return state


def more_than(word: str, state: BatchState) -> str:
    """Slurm's word for an end where it says more than `state` does (`OUT_OF_MEMORY`, `DEADLINE`); "" where not."""
    first = word.split()[0].upper().rstrip("+") if word.split() else ""
    return "" if first == state.name else first


def node_usable(word: str) -> bool:
    """Whether a node in this state (sinfo %T) takes further jobs now. What is not known is not usable."""
    bare = word.strip().lower().rstrip("-")
    return not bare.endswith(tuple(_NODE_FLAGS)) and bare in _NODE_USABLE


def exit_code(text: str) -> int:
    """`7:0` (scontrol, sacct) or `1792` (squeue, a wait status) -> 7; a signal is 128+signal. Raises ValueError."""
    code, colon, number = text.strip().partition(":")
    if colon:
        return 128 + int(number) if int(number) else int(code)
    status = int(code)
    if not 0 <= status <= 0xFFFF:
        raise ValueError(f"{status} is not a wait status")
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8


def epoch_s(text: str) -> float | None:
    """Seconds since the epoch of a time in UTC, the zone in which the commands are run; None where Slurm knows none.

    Raises ValueError for what is no time.
    """
    word = text.strip()
    if word.lower() in _NOTHING:
        return None
    if len(word) != len("2026-11-21T09:48:29"):
        raise ValueError(f"{word!r} is not a time")
    return datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp()


@lru_cache(maxsize=4096)
def hosts(text: str) -> tuple[str, ...]:
    """`n[1-3],m7` -> its hosts. Raises ValueError for what is no host list."""
    word = text.strip()
    if word.lower() in _NOTHING:
        return ()
    try:
        return tuple(NodeSet(word, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise ValueError(f"{word!r} is not a host list: {error}") from error


def count(text: str) -> int:
    """A number that Slurm may shorten: `12`, `4K`, `12-24` (the least counts). Raises ValueError."""
    word = text.strip().partition("-")[0]
    factor = {"K": 1024, "M": 1024 * 1024}.get(word[-1:].upper(), 1)
    return int(float(word[:-1]) * factor) if factor > 1 else int(word)
