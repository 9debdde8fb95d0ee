"""Slurm's words for states, exits and times, and what they mean here."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from ejbd.core.view import BatchState
from ejbd.wire.hostlists import unfold

LISTED = 65536
"""Texts that are remembered from poll to poll; with fewer than a listing has, none would be found again."""

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

# What a node's state may say and still take jobs now. Any other flag keeps them from starting there. It may be DRAIN,
# FAIL, NOT_RESPONDING, MAINTENANCE, POWERED_DOWN and what comes before and after it, a reboot, and what newer versions
# add.
_NODE_USABLE = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_NODE_HARMLESS = frozenset({"CLOUD", "COMPLETING", "PLANNED", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
_AWAY = """
    DOWN DRAIN DRAINED DRAINING ERROR FAIL FAILING FUTURE INVALID INVALID_REG MAINTENANCE NEW NOT_RESPONDING PERFCTRS
    POWERED_DOWN POWERING_DOWN POWERING_UP POWER_DOWN POWER_DRAIN POWER_UP REBOOT_ISSUED REBOOT_REQUESTED RESERVED
    RESUME UNKNOWN BLOCKED EXTERNAL
"""
_NODE_KEEPS_AWAY = frozenset(_AWAY.split())
_NOTHING = frozenset({"", "(null)", "n/a", "none", "none assigned", "unknown"})


@lru_cache(maxsize=4096)
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


@lru_cache(maxsize=256)
def node_usable(text: str) -> bool:
    """Whether a node in this state (`scontrol`: `MIXED+PLANNED`) takes further jobs now; what is unknown does not.

    A star behind the state: it does not answer. RESERVED keeps an idle node for a reservation; a node on which jobs run
    is left to what is known of reservations.
    """
    base, *flags = text.strip().upper().split("+")
    harmless = _NODE_HARMLESS if base == "IDLE" else _NODE_HARMLESS | {"RESERVED"}
    return base in _NODE_USABLE and harmless.issuperset(flags)


def unknown_node_words(text: str) -> list[str]:
    """The words of a node's state of which it is not known what they mean; such a node takes no jobs."""
    words = text.strip().upper().rstrip("*$~#!%@^-").split("+")
    return [word for word in words if word not in _NODE_USABLE | _NODE_HARMLESS | _NODE_KEEPS_AWAY]


def exit_of(text: str) -> tuple[int, int | None]:
    """`7:0` (scontrol, sacct) or `1792` (squeue, a wait status) -> 7, and the signal that ended it.

    Of a signal the code is 128+signal. Raises ValueError.
    """
    code, colon, number = text.strip().partition(":")
    status = int(code) << 8 | int(number) if colon else int(code)
    if not 0 <= status <= 0xFFFF:
        raise ValueError(f"{status} is not a wait status")
    signal = status & 0x7F
    return (128 + signal, signal) if signal else (status >> 8, None)


@lru_cache(maxsize=LISTED)  # most jobs of a poll were there at the last one, too
def epoch_s(text: str) -> float | None:
    """Seconds since the epoch of a time in UTC, the zone in which the commands are run; None where Slurm knows none.

    Raises ValueError for what is no time.
    """
    word = text.strip()
    if word.lower() in _NOTHING:
        return None
    if len(word) != len("2026-11-21T09:48:29"):
        raise ValueError(f"{word!r} is not a time")
    return datetime.fromisoformat(word + "+00:00").timestamp()


@lru_cache(maxsize=LISTED)
def hosts(text: str) -> tuple[str, ...]:
    """`n[1-3],m7` -> its hosts. Raises ValueError for what is no host list."""
    word = text.strip()
    if word.lower() in _NOTHING:
        return ()
    try:
        return tuple(unfold(word))
    except ValueError as error:
        raise ValueError(f"{word!r} is not a host list: {error}") from error


def count(text: str) -> int:
    """A number that Slurm may shorten: `12`, `4K`, `12-24` (the least counts). Raises ValueError."""
    if text.isdigit():
        return int(text)
    word = text.strip().partition("-")[0]
    factor = {"K": 1024, "M": 1024 * 1024}.get(word[-1:].upper(), 1)
    return int(float(word[:-1]) * factor) if factor > 1 else int(word)
