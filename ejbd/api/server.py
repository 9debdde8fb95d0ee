"""Uvicorn on a unix socket, on TCP and, where the settings say so, on TLS, inside the daemon's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ejbd.api.access.allowance import Rates, too_many
from ejbd.api.auth import Peer
from ejbd.api.connections import Handshake, owner_of, party_of
from ejbd.api.ports import KeptPorts
from ejbd.api.problems import problem
from ejbd.api.shares import ADMINISTRATORS, Shares, Use
from ejbd.api.sockets import Door, make_tcp_socket, make_unix_socket, peer_of, take_handed_sockets
from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.files.paths import PORTS, TLS_PORT

SILENT_S = 5.0  # until the first byte of a connection
HEADERS_S = 20.0  # for the headers of a request, from their first byte
BODY_S = 120.0  # for its body
MOST_HEAD_BYTES = 64 * 1024  # request line and headers together
MOST_GATHERED = 16 * 1024  # bytes that are kept until the event loop's next turn
STOP_S = 3  # for requests that are under way when the daemon ends

log = structlog.get_logger(__name__)


def most_connections() -> int:
    """Of the unix socket, and of TCP and TLS together: so few that files can be opened and commands be started."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2048 if soft == resource.RLIM_INFINITY else max(32, min(2048, (soft - 128) // 3))


class _Gathering:
    """A transport that sends what is written in one turn of the event loop at once. The head of an answer and its body,
    for which uvicorn writes twice, are one system call, and wake the other side once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._bytes = 0

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes > MOST_GATHERED:  # a stream that writes on and on is held up by the transport itself
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._pieces.clear()
        self._transport.abort()

    def _send(self) -> None:
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        if pieces and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class PeerProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 protocol that remembers which user is at the other end of a unix socket
    (`request.state.peer`).

    Headers have to be short, which the parser does not see to, and headers and bodies have to come in time. Which
    connection goes where there are too many is decided by :mod:`ejbd.api.shares`. `request.state.connection` is set to
    the user that sends a request (:meth:`is_of`) and to whether its answer is a stream (`streams`).
    """

    party = ""
    streams = False
    encrypted = False
    owner: int | None = None  # the user with the other end, where that is on this machine
    _timer: asyncio.TimerHandle | None = None
    _awaited = ""
    _in_head = False
    _head_bytes = 0  # of headers that are complete
    _fed_bytes = 0  # since the head began, whatever the parser made of them

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Gathering(transport, self.loop)))
        self.app_state = {**self.app_state, "connection": self}
        self._await("anything", SILENT_S)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family == socket.AF_UNIX:
            peer = Peer(*peer_of(raw))
            self.app_state = {**self.app_state, "peer": peer}
            self.party = ADMINISTRATORS if peer.uid in (0, os.geteuid()) else f"uid {peer.uid}"
        else:
            self.encrypted = transport.get_extra_info("sslcontext") is not None
            self.owner = None if self._proxied else owner_of(transport)
            self.party = party_of(transport, self.owner)
        self._shares.enter(self, most_connections())

    def __init__(self, *args: Any, shares: Shares, proxied: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.since = time.monotonic()
        self._shares = shares
        self._proxied = proxied

    def is_of(self, party: str) -> None:
        """A request on this connection has proved which user sends it."""
        if not self.transport.is_closing():
            self._shares.move(self, party, most_connections())

    @property
    def use(self) -> Use:
        if self.cycle is None or self.cycle.response_complete:
            return Use.IDLE
        return Use.STREAM if self.streams else Use.REQUEST

    def cut(self) -> None:
        self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.streams = False
        self._in_head, self._head_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            raise ValueError("headers after a body would change a request that is being answered")
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def _count(self, more_bytes: int) -> None:
        """Raises ValueError, for which the parser's caller answers 400 and closes the connection."""
        self._head_bytes += more_bytes
        if self._head_bytes > MOST_HEAD_BYTES:
            raise ValueError("the head of the request is too long")

    def data_received(self, data: bytes) -> None:
        self._fed_bytes = self._fed_bytes + len(data) if self._in_head else 0
        super().data_received(data)
        if self._in_head and self._fed_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._await("headers", HEADERS_S)
        elif cycle.more_body:
            self._await("body", BODY_S)
        else:
            self._await("", 0.0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await("", 0.0)
        self._shares.leave(self)
        super().connection_lost(exc)

    def _await(self, what: str, within_s: float) -> None:
        if what == self._awaited:
            return
        self._awaited = what
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(within_s, self._late) if what else None

    def _late(self) -> None:
        self.transport.abort()


class _Server(uvicorn.Server):
    """Leaves the process's signals to the daemon."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Servers:
    """The listening API. `url` is the real one, whatever port was asked for; `tls_url` is where it is encrypted."""

    app: FastAPI
    url: str
    tls_url: str | None
    socket_path: Path
    _servers: list[_Server]
    _tasks: list[asyncio.Task[None]]
    _tls: ssl.SSLContext | None
    _identity: tuple[int, int] | None  # of a socket that is this process's own

    def reload(self) -> None:
        """Read the certificate again, and open the audit anew; what cannot be read or opened stays as it was.

        Connections that come from now on are shown the new certificate.
        """
        if (trail := self.app.state.trail) is not None:
            trail.reopen()
        settings: Settings = self.app.state.manager.settings
        if self._tls is not None:
            try:
                _with_certificate(settings, self._tls)
            except EjbError as error:
                log.error("api.certificate-not-read", error=error.sentence())
            else:
                log.info("api.certificate-read", url=self.tls_url)

    async def stop(self) -> None:
        """Listen no longer, let requests under way finish within seconds, remove the socket. Repeatable."""
        self.app.state.closing.set()
        for server in self._servers:
            server.should_exit = True
        _, pending = await asyncio.wait(self._tasks, timeout=STOP_S + 2)
        for task in pending:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(FileNotFoundError):
            if _identity(self.socket_path) == self._identity:  # not systemd's, nor that of a daemon that came after
                self.socket_path.unlink()


async def serve(app: FastAPI, settings: Settings) -> Servers:
    """Listen on the unix socket, on `settings.listen` and on that of `settings.tls`; returns once all answer.

    Raises EjbError: CONFLICT where another daemon listens, INVALID for an address or a certificate that cannot be used.
    """
    handed = take_handed_sockets()
    held = handed.pop(str(settings.socket_path), None)
    sockets = [held or make_unix_socket(settings.socket_path)]
    urls: list[str] = []
    open_ports: set[int] = set()
    tls: ssl.SSLContext | None = None
    try:
        if settings.tls.certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            _with_certificate(settings, tls)
        kept = KeptPorts(settings.state_dir / PORTS)
        for door, listen in (("", settings.listen), *((TLS_PORT, one) for one in (settings.tls.listen,) if one)):
            sock, url, others_may = make_tcp_socket(listen, handed, kept.of(door + listen))
            sockets.append(sock)
            open_ports |= {sock.getsockname()[1]} if others_may else set()
            urls.append(url)
            kept.keep(door + listen, sock.getsockname()[1])
    except EjbError:
        for sock in sockets:
            sock.close()
        if held is None:
            settings.socket_path.unlink(missing_ok=True)
        raise
    for address, sock in handed.items():
        log.warning("api.socket-not-used", address=str(address), why="neither socket, listen nor tls.listen names it")
        sock.close()
    app.state.open_ports = frozenset(open_ports)
    if sockets[1].getsockname()[1] in open_ports and settings.identity == "helper":
        log.warning("api.port-open", why="another user can have this port while the daemon is away", url=urls[0])
    welcome, refusal = _bound_connections(settings)
    tcp = Shares(settings.limits.user_connections)
    by_socket = Shares(settings.limits.user_connections)
    servers = [_Server(_config(app, by_socket, settings)), _Server(_config(app, tcp, settings))]
    servers += [_Server(_config(app, tcp, settings, tls)) for _ in urls[1:]]
    tasks = [
        asyncio.create_task(server.serve(sockets=[Door(sock, welcome, refusal)]), name=f"api-{name}")
        for name, server, sock in zip(("unix", "tcp", "tls"), servers, sockets, strict=False)
    ]
    tls_url = urls[1].replace("http:", "https:") if len(urls) > 1 else None
    app.state.page_url = tls_url or urls[0]
    own = _identity(settings.socket_path) if held is None else None
    result = Servers(app, urls[0], tls_url, settings.socket_path, servers, tasks, tls, own)
    while not all(server.started for server in servers):
        if any(task.done() for task in tasks):
            await result.stop()
            raise EjbError(Code.INTERNAL, "the API's server ended at its start", where=result.url)
        await asyncio.sleep(0.01)
    log.info("api.listening", url=result.url, socket=str(settings.socket_path), tls=tls_url)
    return result


def _bound_connections(settings: Settings) -> tuple[Callable[[int], bool], bytes]:
    """Whether one more connection of a user may come, by its number, and what it is told that may not.

    As many may come at once as a user can have, and then as many a second as requests: each brings one.
    """
    limits, own = settings.limits, (0, os.geteuid())
    rates = Rates(limits.user_requests_per_s, at_once=limits.user_connections)
    error = too_many("this user opens too many connections", 1.0, "send several requests on one connection")
    answer = problem(error, headers={"Connection": "close"})
    lines = [b"HTTP/1.1 429 Too Many Requests", *(name + b": " + value for name, value in answer.raw_headers)]
    refusal = b"\r\n".join([*lines, b"", bytes(answer.body)])
    return lambda uid: uid in own or rates.take(str(uid)) == 0.0, refusal


def _config(
    app: FastAPI, shares: Shares, settings: Settings, encrypted: ssl.SSLContext | None = None
) -> uvicorn.Config:
    options: dict[str, Any] = {"log_config": None, "access_log": False, "ws": "none", "lifespan": "off"}
    proxied = settings.tls.by_proxy

    def make(**given: Any) -> asyncio.Protocol:
        plain = functools.partial(PeerProtocol, shares=shares, proxied=proxied, **given)
        if encrypted is None:
            return plain()
        return Handshake(encrypted, shares, most_connections, lambda: SILENT_S, plain)

    return uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], make),
        proxy_headers=proxied,  # what any other sender says of itself is not believed
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_S,
        **options,
    )


def _with_certificate(settings: Settings, context: ssl.SSLContext) -> None:
    """Raises EjbError (INVALID) for a certificate and a key that cannot be read, or do not belong together."""
    tls = settings.tls
    assert tls.certificate is not None
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        hint = "a PEM file with the certificate, and one with its key, which the daemon's user may read"
        message = f"the certificate cannot be used: {why}"
        raise EjbError(Code.INVALID, message, where=f"tls.certificate={tls.certificate}", hint=hint) from None


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
