"""What the client makes of whatever answers on the daemon's socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ejbd.client.messages import LostConnection, Place, Request
from ejbd.client.unix import UnixTransport
from ejbd.errors import Code, EjbError

GET = Request("GET", "/x", {"Accept": "*/*"}, None)
LONG_S = 30.0


class Peer:
    """Answers each request with the next of `answers`. A connection ends behind an empty last part."""

    def __init__(self, path: Path, answers: list[list[bytes]]) -> None:
        self.path, self.answers = path, answers
        self.heard: list[bytes] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.accepted = 0
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while self.answers:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            with connection:
                connection.settimeout(LONG_S)
                while self.answers and (request := self._request(connection)):
                    self.heard.append(request)
                    parts = self.answers.pop(0)
                    with suppress(BrokenPipeError):  # it has all that it wants, and has closed
                        for part in parts:
                            connection.sendall(part)
                    if parts[-1:] == [b""]:
                        break

    @staticmethod
    def _request(connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return b""
            data += more
        return data

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # else it would go on waiting for another
        self.listener.close()
        self.thread.join(LONG_S)


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[..., tuple[UnixTransport, Peer]]]:
    peers: list[Peer] = []
    transports: list[UnixTransport] = []

    def made(*answers: list[bytes]) -> tuple[UnixTransport, Peer]:
        peer = Peer(tmp_path / f"{len(peers)}.sock", list(answers))
        peers.append(peer)
        transports.append(UnixTransport(Place(None, str(peer.path), None)))
        return transports[-1], peer

    yield made
    for transport in transports:
        transport.close()
    for peer in peers:
        peer.close()


Answering = Callable[..., tuple[UnixTransport, Peer]]
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok"


def test_answers_come_over_one_connection_that_is_kept(answering: Answering) -> None:
    transport, peer = answering([SHORT], [SHORT[:20], SHORT[20:-1], SHORT[-1:]])
    for _ in range(2):
        assert transport.send(GET, LONG_S) == (200, {"content-length": "2", "x-a": "b"})
        assert transport.body() == b"ok"
        assert transport.kept
    assert peer.accepted == 1
    assert peer.heard[0] == b"GET /x HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: identity\r\nAccept: */*\r\n\r\n"


def test_a_body_goes_with_its_length(answering: Answering) -> None:
    transport, peer = answering([SHORT], [SHORT])
    transport.send(Request("POST", "/x", {}, b"{}"), LONG_S)
    transport.body()
    transport.send(Request("POST", "/x", {}, None), LONG_S)
    transport.body()
    assert b"Content-Length: 2\r\n" in peer.heard[0] and b"Content-Length: 0\r\n" in peer.heard[1]


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 7\r\n\r\na\n", b"b\nc\n", b"d", b""],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n", b"4\r\n\nc\nd\r\n0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n\r\na\nb", b"\nc\nd", b""],
    ],
    ids=["closed behind it", "chunked", "until the connection ends"],
)
def test_lines_are_whole_however_they_come(answering: Answering, parts: list[bytes]) -> None:
    transport, _ = answering(parts, [SHORT])
    transport.send(GET, LONG_S)
    assert list(transport.lines()) == [b"a\n", b"b\n", b"c\n", b"d"]
    assert transport.kept is (b"chunked" in parts[0])
    transport.send(GET, LONG_S)
    assert transport.body() == b"ok"


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"HTTP/1.1 200 OK\r\nContent-Le", b""],
        [b"+OK ready\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000 + b"\r\n"] + [b"Y: " + b"b" * 70000 + b"\r\n"] * 15 + [b""],
    ],
    ids=["nothing", "half a head", "another protocol", "a head without end"],
)
def test_what_is_no_answer_is_a_lost_connection(answering: Answering, parts: list[bytes]) -> None:
    transport, _ = answering(parts, [SHORT])
    with pytest.raises(LostConnection):
        transport.send(GET, LONG_S)
    assert not transport.kept


def test_half_a_body_is_a_lost_connection(answering: Answering) -> None:
    transport, _ = answering([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", b""])
    transport.send(GET, LONG_S)
    with pytest.raises(LostConnection):
        transport.body()


def test_what_is_left_of_an_answer_is_not_taken_for_the_next(answering: Answering) -> None:
    transport, peer = answering([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"], [SHORT])
    transport.send(GET, LONG_S)
    assert transport.send(GET, LONG_S)[0] == 200 and transport.body() == b"ok"
    assert peer.accepted == 2


def test_silence_is_bounded(answering: Answering) -> None:
    transport, _ = answering([SHORT[:-1]], [])
    transport.send(GET, 0.2)
    with pytest.raises(LostConnection):
        transport.body()


def test_a_header_with_a_line_break_does_not_go_out(answering: Answering) -> None:
    transport, _ = answering([SHORT])
    with pytest.raises(ValueError):
        transport.send(Request("GET", "/x", {"Authorization": "Bearer a\r\nX: y"}, None), LONG_S)


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EjbError) as caught:
        UnixTransport(Place(None, str(tmp_path / "none"), None)).connect()
    assert caught.value.code is Code.UNREACHABLE
