"""HTTP over the daemon's unix socket, by `httptools`, which the daemon itself reads requests with.

The one place beside httpx: `ejb submit` on a unix socket is started often. httpx's import alone takes four times as
long as the whole of it may, and that of `http.client` a quarter of it (benchmarks/README.md). What is asked of `socket`
is in the module that it is built on. Over TCP, and asynchronously, httpx carries everything.
"""

from __future__ import annotations

from _socket import AF_UNIX, SOCK_STREAM
from _socket import socket as Socket
from collections.abc import Callable, Iterator

from httptools import HttpParserError, HttpResponseParser

from ejbd.client.messages import CONNECT_S, LostConnection, Place, Request

_AT_ONCE = 65536
_MOST_HEAD = 1 << 20  # bytes until the headers of an answer are whole

await_daemon: Callable[[str], bool] | None = None
"""Set by `ejb`: called with the path of a socket that no daemon listens on; whether one does now."""


class _Answer:
    """What the parser has found of one answer so far."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.begun = self.over = self.kept = False  # its headers are whole; so is its body; another may come behind it
        self.parser = HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.over, self.kept = True, self.parser.should_keep_alive()

    @property
    def ends_with_connection(self) -> bool:
        return self.begun and not {"content-length", "transfer-encoding"} & self.headers.keys()

    def taken(self) -> bytes:
        """What of its body has come since it was asked last."""
        found, self.parts = b"".join(self.parts), []
        return found


class UnixTransport:
    """One connection, kept between requests. Not for two threads at once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._socket: Socket | None = None
        self._answer: _Answer | None = None

    @property
    def kept(self) -> bool:
        """Whether there is a connection from before, which may have ended meanwhile."""
        return self._socket is not None

    def connect(self) -> None:
        """Raises EjbError: UNREACHABLE, FORBIDDEN for a socket that could be another user's.

        Where no daemon is there, :data:`await_daemon` may wait for it.
        """
        self.place.refuse_socket_of_others()
        made = Socket(AF_UNIX, SOCK_STREAM)
        try:
            made.settimeout(CONNECT_S)
            made.connect(self.place.socket)
        except OSError as error:
            made.close()
            absent = isinstance(error, FileNotFoundError | ConnectionRefusedError)
            if absent and await_daemon is not None and await_daemon(self.place.socket):
                return self.connect()
            raise self.place.unreachable(error.strerror or str(error)) from None
        self._socket = made
        return None

    def send(self, request: Request, timeout_s: float | None) -> tuple[int, dict[str, str]]:
        """Status and headers (in small letters) of the answer. Raises LostConnection, and EjbError (UNREACHABLE)."""
        if self._answer is not None and not self._answer.over:
            self.close()  # what is left of the answer before would be taken for this one's
        if self._socket is None:
            self.connect()
        connection = self._socket
        assert connection is not None
        answer = self._answer = _Answer()
        try:
            connection.settimeout(timeout_s)
            connection.sendall(_written(request))
        except OSError as error:
            raise self._lost(error) from None
        length = 0
        while not answer.begun:
            length += self._more(answer)
            if length > _MOST_HEAD:
                raise self._lost(ValueError("the headers of the answer have no end"))
        return answer.parser.get_status_code(), answer.headers

    def body(self) -> bytes:
        """The whole of the answer's body. Raises LostConnection."""
        return b"".join(self.chunks())

    def lines(self) -> Iterator[bytes]:
        """The body's lines as they come. Raises LostConnection."""
        begun = b""
        for data in self.chunks():
            *whole, begun = (begun + data).split(b"\n")
            for line in whole:
                yield line + b"\n"
        if begun:
            yield begun

    def chunks(self) -> Iterator[bytes]:
        """The body's bytes as they come. Raises LostConnection."""
        answer = self._answer
        assert answer is not None
        while True:
            if data := answer.taken():
                yield data
            if answer.over:
                break
            self._more(answer)
        if answer is self._answer and not answer.kept:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _more(self, answer: _Answer) -> int:
        """Read on; how many bytes came. Raises LostConnection."""
        try:
            if self._socket is None:
                raise ConnectionError("it was closed")
            data = self._socket.recv(_AT_ONCE)
            if not data and answer.ends_with_connection:
                answer.over = True
            elif not data:
                raise ConnectionError("it ended before the answer did")
            else:
                answer.parser.feed_data(data)
        except (OSError, HttpParserError) as error:
            raise self._lost(error) from None
        return len(data)

    def _lost(self, error: Exception) -> LostConnection:
        self.close()
        return LostConnection(str(error) or type(error).__name__)


def _written(request: Request) -> bytes:
    """A request as it goes over the wire."""
    headers = {"Host": "localhost", "Accept-Encoding": "identity", **request.headers}
    if request.data is not None or request.method != "GET":
        headers["Content-Length"] = str(len(request.data or b""))
    lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of a request has a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (request.data or b"")
