"""Which user has a TCP socket of this machine, as the kernel says (`sock_diag(7)`), and which ports any may have."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

NOWHERE = ("0.0.0.0", 0)
_LOW_PORTS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_SOCK_DIAG, _BY_FAMILY, _REQUESTED = 4, 20, 1
_ANY_STATE, _ANY_COOKIE, _ANY_INTERFACE = 0xFFFFFFFF, b"\xff" * 8, b"\0" * 4
_UID_AND_INODE = struct.Struct("=II")
_UID_AT = _HEADER.size + 64  # of `struct inet_diag_msg`


def find_socket_owner(ours: tuple[str, int], theirs: tuple[str, int], family: int) -> int | None:
    """The number of the user of the socket that is bound to `theirs` and connected to `ours`, two addresses here.

    None: the socket is on another machine or was closed, or the kernel does not say. `NOWHERE` as `ours`: of the socket
    that listens at `theirs`.
    """
    try:
        asked = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE) + struct.pack("!HH", theirs[1], ours[1])
        asked += b"".join(socket.inet_pton(family, one[0]).ljust(16, b"\0") for one in (theirs, ours))
        asked += _ANY_INTERFACE + _ANY_COOKIE
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUESTED, 1, 0) + asked)
            told = kernel.recv(8192)
    except OSError:
        return None
    if len(told) < _UID_AT + _UID_AND_INODE.size or _HEADER.unpack_from(told)[1] != _BY_FAMILY:
        return None
    uid, inode = _UID_AND_INODE.unpack_from(told, _UID_AT)
    return int(uid) if inode else None  # what was closed has no inode, and would be root's


def is_port_of_any_user(port: int) -> bool:
    """Whether the system lets every user listen there."""
    try:
        return port >= int(_LOW_PORTS.read_text())
    except (OSError, ValueError):
        return port >= 1024
