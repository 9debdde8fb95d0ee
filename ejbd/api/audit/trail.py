"""Where the lines of the audit go: a file (0600, appended to, opened anew on HUP), or systemd's journal."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import structlog

from ejbd.errors import Code, EjbError

JOURNAL = "journald"  # in the place of a path
JOURNAL_SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "ejbd-audit"  # `journalctl -t` finds the lines by it
_JOURNAL_S = 0.5

log = structlog.get_logger(__name__)


class Sink(Protocol):
    """What takes lines. `write` raises OSError."""

    def write(self, line: str) -> None: ...

    def reopen(self) -> None: ...

    def close(self) -> None: ...


class FileSink:
    """A file that is the daemon's user's alone. Each line is one write at its end, whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = self._open()

    def write(self, line: str) -> None:
        data = line.encode() + b"\n"
        before = os.fstat(self._fd).st_size
        written = os.write(self._fd, data)
        if written < len(data):  # the disk has become full: half a line would spoil the next one, too
            os.ftruncate(self._fd, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def reopen(self) -> None:
        """After it was moved away: what comes now goes into a new one of the old name."""
        fd = self._open()
        os.close(self._fd)
        self._fd = fd

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        """Raises OSError, also for what is no file of the daemon's own."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(self.path, flags, 0o600)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(fd)
            raise OSError(errno.EPERM, "not a regular file of the daemon's user")
        os.fchmod(fd, 0o600)
        return fd


class JournalSink:
    """systemd's journal, by its own protocol: a datagram a line."""

    def __init__(self, address: str = JOURNAL_SOCKET) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self.reopen()

    def write(self, line: str) -> None:
        if self._socket is None:
            self.reopen()
        try:
            self._send(line)
        except (ConnectionError, FileNotFoundError):  # the journal was started anew
            self.reopen()
            self._send(line)

    def _send(self, line: str) -> None:
        assert self._socket is not None
        self._socket.send(f"MESSAGE={line}\nPRIORITY=5\nSYSLOG_IDENTIFIER={IDENTIFIER}\n".encode())

    def reopen(self) -> None:
        self.close()
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        fresh.settimeout(_JOURNAL_S)
        try:
            fresh.connect(self._address)
        except OSError:
            fresh.close()
            raise
        self._socket = fresh

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Trail:
    """The audit of one daemon. While its lines cannot be kept, nothing is done that would need one."""

    def __init__(self, sink: Sink, path: Path | None) -> None:
        self.path = path  # None: the journal has it
        self._sink = sink
        self._why = ""

    def tell(self, record: dict[str, Any]) -> None:
        """Keep one line. Where it cannot be kept the log says so, and :meth:`refuse_unkept` refuses what comes."""
        try:
            self._sink.write(json.dumps(record, ensure_ascii=True, separators=(",", ":")))
        except OSError as error:
            self._why = error.strerror or str(error)
            log.error("audit.not-kept", error=self._why, record=record)
        else:
            self._why = ""

    def refuse_unkept(self, note: Callable[[], dict[str, Any]]) -> None:
        """Raise EjbError (STORE) while no line can be kept; `note` is a line that finds out whether it can again."""
        if not self._why:
            return
        self.tell(note())
        if self._why:
            message = f"nothing is done here while the audit cannot be kept: {self._why}"
            raise EjbError(Code.STORE, message, transient=True, hint="the daemon's administrators can mend that")

    def reopen(self) -> None:
        """On HUP. Where it fails the old one goes on."""
        try:
            self._sink.reopen()
        except OSError as error:
            log.error("audit.not-reopened", error=error.strerror or str(error))

    def close(self) -> None:
        self._sink.close()


def open_trail(where: str | None) -> Trail | None:
    """The audit that the settings want; None: none. Raises EjbError (INVALID) where it cannot be begun."""
    if where is None:
        return None
    try:
        return Trail(JournalSink(), None) if where == JOURNAL else Trail(FileSink(Path(where)), Path(where))
    except OSError as error:
        hint = f"the name of a file that the daemon's user may make, or {JOURNAL}"
        message = f"the audit cannot be kept there: {error.strerror or error}"
        raise EjbError(Code.INVALID, message, where=f"audit={where}", hint=hint) from None
