"""Which user has a TCP connection, and connections that are not encrypted yet: they count, too, and have not long."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

from ejbd.api.auth import is_loopback
from ejbd.api.shares import OF_ADDRESSES, Shares, Use
from ejbd.files.tcpports import find_socket_owner

_IPV4_MAPPED = "::ffff:"


def owner_of(transport: asyncio.BaseTransport) -> int | None:
    """The number of the user with the other end, where that is on this machine and the kernel says so."""
    ours, theirs = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    if not ours or not theirs or not (is_loopback(theirs[0]) or theirs[0] == ours[0]):
        return None
    here, there = ((host.removeprefix(_IPV4_MAPPED), port) for host, port, *_ in (ours, theirs))
    return find_socket_owner(here, there, socket.AF_INET6 if ":" in there[0] else socket.AF_INET)


def party_of(transport: asyncio.BaseTransport, owner: int | None) -> str:
    """Of a connection on which no request has come."""
    address = (transport.get_extra_info("peername") or ("",))[0]
    return f"{OF_ADDRESSES}{address}" if owner is None else f"uid {owner}"


class Handshake(asyncio.Protocol):
    """Encrypts a connection within `within_s`, and hands it to the protocol that `make` makes."""

    use = Use.IDLE

    def __init__(
        self,
        context: ssl.SSLContext,
        shares: Shares,
        most: Callable[[], int],
        within_s: Callable[[], float],
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        self.party, self.since = "", time.monotonic()
        self._context, self._shares, self._most, self._within_s, self._make = context, shares, most, within_s, make
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # came with the last words of the handshake
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()  # what comes is for the encryption
        self.party = party_of(transport, owner_of(transport))
        self._shares.enter(self, self._most())
        self._task = asyncio.get_running_loop().create_task(self._encrypt(), name="tls-handshake")

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._shares.leave(self)

    def cut(self) -> None:
        self._transport.abort()

    async def _encrypt(self) -> None:
        loop, within_s = asyncio.get_running_loop(), self._within_s()
        try:
            how: dict[str, Any] = {"server_side": True, "ssl_handshake_timeout": within_s}
            encrypted = await loop.start_tls(self._transport, self, self._context, **how)
        except (OSError, ssl.SSLError):  # it went, took too long, or speaks something else
            encrypted = None
        finally:
            self._shares.leave(self)
        if encrypted is None or self._is_lost:
            self._transport.abort()
            return
        made = self._make()
        encrypted.set_protocol(made)
        made.connection_made(encrypted)
        if self._early:
            made.data_received(b"".join(self._early))
