"""PBS's words for states, ends, times and hosts, in both dialects, and what they mean here."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

from ejbd.core.view import BatchState


class Dialect(StrEnum):
    """Which PBS the commands are of: they share names and little else."""

    OPENPBS = "openpbs"
    TORQUE = "torque"


_LIVING = {
    "Q": BatchState.PENDING,
    "T": BatchState.PENDING,  # on its way into or out of a queue
    "W": BatchState.PENDING,  # for its time
    "H": BatchState.HELD,
    "R": BatchState.RUNNING,
    "B": BatchState.RUNNING,  # an array of which something has begun
    "E": BatchState.ENDING,
    "S": BatchState.SUSPENDED,
    "U": BatchState.SUSPENDED,  # by a keyboard in use
}
_ENDED = {Dialect.OPENPBS: frozenset("FX"), Dialect.TORQUE: frozenset("C")}

# Below zero an exit status says what the server or a mom did. Those of lost nodes and daemons are no job's own fault.
_TIMEOUT = {Dialect.OPENPBS: -29, Dialect.TORQUE: -11}
_NODE_FAIL = {
    Dialect.OPENPBS: frozenset({-3, -4, -5, -6, -14, -16, -18, -20, -30}),
    Dialect.TORQUE: frozenset({-3, -4, -5, -6, -13, -14}),
}
_SIGNALLED = 256
_TERM = 15
_DELETED = "91"

_ID = re.compile(r"[0-9]+(\[[0-9]*\])?(\.[A-Za-z0-9._:-]+)?", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_CHUNK = re.compile(r"(?P<node>[^:()+\s]+)(?P<resources>(:[^:()+\s=]+=[^:()+\s]*)*)", re.ASCII)


def is_job_id(word: str) -> bool:
    """Whether this is a job's number, with or without its server: `12`, `12.head`, `12[3].head`, `12[].head`."""
    return _ID.fullmatch(word) is not None and len(word) < 300


def number_of(id: str) -> str:
    """What stays the same however the server is called: `12` of `12.head`, `12[3]` of `12[3].head`."""
    return id.partition(".")[0]


def living_state(word: str, *, hold: str = "", depends: bool = False) -> tuple[BatchState, bool]:
    """The state of a job that has not ended, and whether it waits for something else than room.

    A hold of the system's own on a job that depends on another is no hold that a user could release.
    """
    state = _LIVING.get(word, BatchState.UNKNOWN)
    if state is BatchState.HELD and depends and not set(hold) & set("uo"):
        return BatchState.PENDING, True
    return state, state is BatchState.PENDING and word != "Q"


def has_ended(dialect: Dialect, word: str) -> bool:
    """Whether this letter is that of a job that has ended."""
    return word in _ENDED[dialect]


def end_of(
    dialect: Dialect, status: int | None, substate: str = "", began: bool = True
) -> tuple[BatchState, int | None, str]:
    """How a job ended: state, exit code (128+signal for a signal) and PBS's own word where it says more.

    Torque shows nothing of a deletion but the signal that it ended the job with: a TERM is taken for one. Deleted
    before its script began it has an exit status of 0: `began` says whether there was a session.
    """
    if status is None or (dialect is Dialect.TORQUE and status == 0 and not began):
        return BatchState.CANCELLED, None, ""
    if status == _TIMEOUT[dialect]:
        return BatchState.TIMEOUT, None, ""
    code = 128 + (status - _SIGNALLED) % 128 if status >= _SIGNALLED else status
    deleted = substate == _DELETED if dialect is Dialect.OPENPBS else status == _SIGNALLED + _TERM
    if deleted:
        return BatchState.CANCELLED, code if code >= 0 else None, ""
    if status < 0:
        lost = status in _NODE_FAIL[dialect]
        return BatchState.NODE_FAIL if lost else BatchState.FAILED, None, f"exit status {status}"
    return BatchState.COMPLETED if code == 0 else BatchState.FAILED, code, ""


def exit_status(text: str) -> int:
    """`271`, `-29`. Raises ValueError for what cannot be one."""
    if not re.fullmatch(r"-?[0-9]{1,5}", text, re.ASCII):
        raise ValueError(f"{text[:30]!r} is not an exit status")
    return int(text)


def seconds(text: str) -> float:
    """A length of time: `90`, `1.5`, `30:00`, `100:00:00`, `1:02:00:07` (days first). Raises ValueError."""
    parts = text.strip().split(":")
    if not 1 <= len(parts) <= 4 or not all(re.fullmatch(r"[0-9]{1,12}", part, re.ASCII) for part in parts[:-1]):
        raise ValueError(f"{text[:30]!r} is no length of time")
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", parts[-1], re.ASCII):
        raise ValueError(f"{text[:30]!r} is no length of time")
    total = 0.0
    for factor, part in zip((1.0, 60.0, 3600.0, 86400.0), reversed(parts), strict=False):
        total += factor * float(part)
    return total


def formatted(walltime_s: float) -> str:
    """A walltime as both dialects read it, in whole seconds: `01:30:00`."""
    whole = max(1, round(walltime_s))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_WORD_BYTES = 8


def megabytes(text: str) -> int:
    """Whole megabytes of a size: `24684084kb`, `8gb`, `512` (bytes), `4mw` (words). Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,18})([kmgtp]?)([bw]?)", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text[:30]!r} is no size")
    size = int(match[1]) * _UNITS[match[2].lower()] * (_WORD_BYTES if match[3].lower() == "w" else 1)
    return size >> 20


@lru_cache(maxsize=4096)
def epoch_s(text: str) -> float:
    """Seconds since the epoch of `1795243380` or of `Sat Nov 21 06:38:05 2026`, in UTC. Raises ValueError."""
    word = text.strip()
    if re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,9})?", word, re.ASCII):
        return float(word)
    return datetime.strptime(word, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()


def slots(text: str) -> int:
    """How many processors a list of slots names: `0-3` is 4, `0,2-3` is 3, `0*4` (OpenPBS) is 4. Raises ValueError."""
    head, star, times = text.partition("*")
    if star:
        _small(head)
        return _small(times)
    total = 0
    for piece in text.split(","):
        first, dash, last = piece.partition("-")
        low = _small(first)
        high = _small(last) if dash else low
        if high < low:
            raise ValueError(f"{text[:30]!r} is no list of slots")
        total += high - low + 1
    return total


def exec_hosts(text: str) -> dict[str, int]:
    """Processors by host, in their order: `n3/0*4+n1/0*4`, `n2/0-3+n1/0-3`, `n/7+n/6`. Raises ValueError."""
    found: dict[str, int] = {}
    for piece in filter(None, text.strip().split("+")):
        host, slash, where = piece.partition("/")
        if not slash or not _HOST.fullmatch(host):
            raise ValueError(f"{piece[:40]!r} is no host with its slots")
        found[host] = found.get(host, 0) + slots(where)
    return found


def exec_vnodes(text: str) -> dict[str, int]:
    """Processors by vnode of `(n3:ncpus=3+n3[0]:ncpus=1)+(n1:ncpus=4)`. Raises ValueError."""
    found: dict[str, int] = {}
    bare = text.strip()
    if bare.count("(") != bare.count(")"):
        raise ValueError(f"{text[:40]!r} is torn")
    for piece in filter(None, bare.replace("(", "").replace(")", "").split("+")):
        match = _CHUNK.fullmatch(piece)
        if match is None:
            raise ValueError(f"{piece[:40]!r} is no vnode with its resources")
        resources = dict(word.split("=", 1) for word in match["resources"].split(":") if word)
        found[match["node"]] = found.get(match["node"], 0) + _small(resources.get("ncpus", "0"))
    return found


def vnode_host(name: str) -> str:
    """The host of a vnode that bears no host of its own: `n3` of `n3[0]`."""
    return name.partition("[")[0]


def _small(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise ValueError(f"{text[:30]!r} is no number")
    return int(text)
