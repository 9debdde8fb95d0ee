"""HTTP over the daemon's unix socket, by `http.client`.

The one place beside httpx: `ejb submit` on a unix socket is started often. httpx's import alone takes four times as
long as the whole of it may (benchmarks/README.md). Over TCP, and asynchronously, httpx carries everything.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

from ejbd.client.messages import CONNECT_S, LostConnection, Place, Request


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(self.path)


class UnixTransport:
    """One connection, kept between requests. Not for two threads at once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._connection: _Connection | None = None
        self._response: http.client.HTTPResponse | None = None

    @property
    def kept(self) -> bool:
        """Whether there is a connection from before, which may have ended meanwhile."""
        return self._connection is not None

    def connect(self) -> None:
        """Raises EjbError (UNREACHABLE)."""
        connection = _Connection(self.place.socket)
        try:
            connection.connect()
        except OSError as error:
            raise self.place.unreachable(error.strerror or str(error)) from None
        self._connection = connection

    def send(self, request: Request, timeout_s: float | None) -> tuple[int, dict[str, str]]:
        """Status and headers (in small letters) of the answer. Raises LostConnection, and EjbError (UNREACHABLE)."""
        if self._connection is None:
            self.connect()
        connection = self._connection
        assert connection is not None
        try:
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            connection.request(request.method, request.target, request.data, request.headers)
            self._response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from None
        return self._response.status, {name.lower(): value for name, value in self._response.getheaders()}

    def body(self) -> bytes:
        """The whole of the answer's body. Raises LostConnection."""
        assert self._response is not None
        try:
            return self._response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from None

    def lines(self) -> Iterator[bytes]:
        """The body's lines as they come. Raises LostConnection."""
        response = self._response
        assert response is not None
        try:
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from None

    def chunks(self) -> Iterator[bytes]:
        """The body's bytes as they come. Raises LostConnection."""
        response = self._response
        assert response is not None
        try:
            while data := response.read1(65536):
                yield data
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(error) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lost(self, error: Exception) -> LostConnection:
        self.close()
        return LostConnection(str(error) or type(error).__name__)
