"""Signs of life in the spool: by them a daemon on a copy of a database finds the one that has the jobs.

The daemon that has a spool leaves a sign in it every few seconds, with a number that its database has before. So a
sign with a later number than the database knows is of a daemon on another copy. An earlier one is of a daemon before
this one, or of one from which the database was copied within the last seconds.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SIGN_NAME = "daemon.json"
MOST_BYTES = 4096
STILL_S = 25.0  # after which a sign that stays as it was is of a daemon that has gone


@dataclass(frozen=True, slots=True)
class Sign:
    """`run`: of one start of a daemon. `place`: where its `pid` means something; it `started` at that tick.

    `has_ended`: it was its last one.
    """

    run: str
    number: int
    host: str
    place: str
    pid: int
    started: str
    has_ended: bool = False

    @classmethod
    def of_this_process(cls, run: str, number: int) -> Sign:
        """What this process leaves."""
        return cls(run, number, socket.gethostname(), _place(), os.getpid(), _started(os.getpid()))

    @classmethod
    def parse(cls, data: bytes) -> Sign | None:
        """None where that is no sign."""
        try:
            told: dict[str, Any] = json.loads(data)
            run, host, place, started = (str(told[name]) for name in ("run", "host", "place", "started"))
            return cls(run, int(told["number"]), host, place, int(told["pid"]), started, told["has_ended"] is True)
        except (ValueError, KeyError, TypeError):
            return None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_of_this_process(self) -> bool:
        """Whether this process has left it, in whichever run."""
        return self.pid == os.getpid() and bool(self.is_living())

    def is_living(self) -> bool | None:
        """Whether its process lives; None where that cannot be seen from this machine."""
        return _started(self.pid) == self.started if self.place == _place() else None


class Rivals:
    """Whether another daemon lives by the spool's sign. `is_led`: the database lets one daemon write, on whichever
    machine, so that one before this one has ended (a standby)."""

    def __init__(self, is_led: bool, monotonic: Callable[[], float]) -> None:
        self._is_led = is_led
        self._monotonic = monotonic
        self._seen: Sign | None = None
        self._since_s = 0.0
        self._shown: set[Sign] = set()
        self._followed: str | None = None  # the run that this daemon has come after

    def find(self, sign: Sign | None, known: int) -> str:
        """Why this daemon must not act, or "". `sign`: what the spool has; `known`: the database's number before."""
        if sign is None or sign.is_of_this_process():
            self._followed = self._followed or ""
            return ""
        where = f"process {sign.pid} on {sign.host}"
        if self._followed is not None:
            # The first daemon goes on where a second one has come, and the second one finds that. One sign may be late.
            if sign.run == self._followed and not sign.has_ended:
                self._shown.add(sign)
            return f"the daemon before this one lives ({where})" if len(self._shown) > 1 else ""
        now, is_later = self._monotonic(), sign.number > known
        if sign != self._seen:
            self._seen, self._since_s = sign, now
        is_still = now - self._since_s >= STILL_S and not (is_later and sign.is_living())
        if sign.has_ended or sign.is_living() is False or (self._is_led and not is_later) or is_still:
            self._followed = sign.run
            return ""
        if is_later:
            return f"another daemon has the spool, and a later copy of this database ({where})"
        return f"another daemon may have the spool ({where}); it counts as gone after {STILL_S:g} s without a sign"


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """The tick at which a process has started; "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
