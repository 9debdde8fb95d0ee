"""A daemon that has just been started and does not answer yet (`ejbd & ejb submit ...`): `ejb` waits for it a while."""

# ruff: noqa: PTH208  # `ejb submit` is started often: no pathlib

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

STARTS_WITHIN_S = 30.0  # 1 s on a quiet machine
_OTHER_COMMANDS = frozenset({b"stop", b"doctor", b"backup", b"restore", b"check"})


def await_starting_daemon(path: str) -> bool:
    """Wait for a daemon at this unix socket; whether it answers now.

    It waits, with a line on standard error, as long as an ejbd of this session has just been started. Where there is
    none it returns at once.
    """
    until_s, told = time.monotonic() + STARTS_WITHIN_S, False
    while time.monotonic() < until_s and any(age_s < STARTS_WITHIN_S for age_s in _ages_of_daemons()):
        if not told:
            print("ejb: an ejbd is just starting; waiting until it answers", file=sys.stderr)
            told = True
        time.sleep(0.1)
        import socket  # where a daemon answers at once nothing needs it

        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            try:
                tried.settimeout(1)
                tried.connect(path)
            except OSError:
                continue
            return True
    return False


def _ages_of_daemons() -> Iterator[float]:
    """Seconds since each ejbd of this session was started."""
    session, now_s = os.getsid(0), float(_read_proc("uptime").split()[0])
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = _read_proc(f"{pid}/cmdline").split(b"\0")
            names = {word.rpartition(b"/")[2] for word in words[:3]}
            if not {b"ejbd", b"ejbd.daemon"} & names or _OTHER_COMMANDS & set(words):
                continue
            told = _read_proc(f"{pid}/stat").rpartition(b")")[2].split()
            if int(told[3]) == session:
                yield now_s - int(told[19]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile


def _read_proc(name: str) -> bytes:
    with open(f"/proc/{name}", "rb") as file:
        return file.read()
