"""The sockets that the API listens on: those that systemd holds for the daemon (`sd_listen_fds(3)`), and others."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from ejbd.errors import Code, EjbError
from ejbd.files.paths import LONGEST_SOCKET_PATH
from ejbd.files.tcpports import is_port_of_any_user

FIRST_HANDED = 3  # the descriptor
ACCEPTED_AT_ONCE, REFUSED_AT_ONCE = 8, 64  # connections in one turn of the event loop
_CREDENTIALS = struct.Struct("3i")

log = structlog.get_logger(__name__)


class Door(socket.socket):
    """A listening socket that gives a few connections at a time. The event loop would take all that wait in one go, a
    thousand of one user's, and do nothing else meanwhile.

    `welcome`: whether one more of that user's may come; those of others than a unix socket's have no number. What may
    not come is told `refusal`, and costs next to nothing.
    """

    def __init__(self, listening: socket.socket, welcome: Callable[[int], bool], refusal: bytes) -> None:
        super().__init__(fileno=listening.detach())
        self._welcome, self._refusal = welcome, refusal
        self._taken = self._refused = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError where none waits, and now and then where some do."""
        while self._taken < ACCEPTED_AT_ONCE and self._refused < REFUSED_AT_ONCE:
            made, address = super().accept()
            if self.family != socket.AF_UNIX or self._welcome(peer_of(made)[1]):
                self._taken += 1
                return made, address
            self._refused += 1
            with made, suppress(OSError):
                made.setblocking(False)
                made.send(self._refusal)
        self._taken = self._refused = 0
        raise BlockingIOError


def peer_of(connected: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other end of a unix socket, as the kernel says."""
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(packed)
    return pid, uid, gid


def take_handed_sockets() -> dict[object, socket.socket]:
    """Those that the process was started with, by what they are bound to. A second call finds none."""
    count, pid = os.environ.pop("LISTEN_FDS", "0"), os.environ.pop("LISTEN_PID", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    found: dict[object, socket.socket] = {}
    for number in range(FIRST_HANDED, FIRST_HANDED + int(count) if pid == str(os.getpid()) else FIRST_HANDED):
        os.set_inheritable(number, False)
        sock = socket.socket(fileno=number)
        sock.setblocking(False)
        found[sock.getsockname()] = sock
    return found


def make_unix_socket(path: Path) -> socket.socket:
    """Bind and listen. Mode 0666: the kernel knows which user connects. The folder, if it is made here, lets others
    through without letting them look around (0711); a folder that is there keeps its mode."""
    if len(bytes(path)) > LONGEST_SOCKET_PATH:
        why = f"the path of the unix socket has {len(bytes(path))} bytes; {LONGEST_SOCKET_PATH} is the most"
        raise EjbError(Code.INVALID, why, where=str(path), hint="set `socket` to a shorter path")
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        sock.bind(str(new))
        new.chmod(0o666)
        sock.listen(1024)
        new.replace(path)
    except OSError as error:
        sock.close()
        raise EjbError(Code.INVALID, f"cannot listen there: {error.strerror}", where=str(path)) from None
    sock.setblocking(False)
    return sock


def _clear(path: Path) -> None:
    """Raise EjbError unless nothing, or a socket that no process answers, is at `path`."""
    if not path.exists():
        return
    if not path.is_socket():
        hint = "set `socket` to another path"
        raise EjbError(Code.INVALID, "there is something else than a socket", where=str(path), hint=hint)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return  # left by a daemon that was killed
        except OSError:
            pass  # busy, or not ours to try: it is in use
    hint = "end it first, or give this one a socket of its own"
    raise EjbError(Code.CONFLICT, "another daemon answers at this socket", where=str(path), hint=hint)


def make_tcp_socket(
    listen: str, handed: dict[object, socket.socket], kept_port: int = 0
) -> tuple[socket.socket, str, bool]:
    """What listens at `host:port`, its URL, and whether another user could listen there while the daemon is away.

    One of `handed` is taken out of it. Where any port will do, that of before is tried first. Raises EjbError.
    """
    if kept_port and listen.endswith(":0"):
        try:
            return make_tcp_socket(f"{listen.removesuffix(':0')}:{kept_port}", handed)
        except EjbError:
            log.warning("api.port-taken", listen=listen, port=kept_port)
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise EjbError(Code.INVALID, "this is not host:port", where=f"listen={listen}", hint="e.g. 127.0.0.1:8642")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise EjbError(Code.INVALID, f"there is no such address: {error.strerror}", where=f"listen={listen}") from None
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    if (held := handed.pop(address, None)) is not None:
        return held, f"http://{shown}:{port}", False
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        hint = "choose another port, or 0 for any that is free"
        raise EjbError(
            Code.CONFLICT, f"cannot listen there: {error.strerror}", where=f"listen={listen}", hint=hint
        ) from None
    sock.setblocking(False)
    taken = sock.getsockname()[1]
    return sock, f"http://{shown}:{taken}", is_port_of_any_user(taken)
