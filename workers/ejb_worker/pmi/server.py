"""The PMI-1 server process: `worker.pyz pmi --folder DIR --host ADDRESS`, or `--fd NUMBER` of a socket that listens.

It may be a member of a computation under DMTCP and then moves along with the ranks. So it is one thread, one poll loop,
no files that stay open. Its sockets are made without SOCK_CLOEXEC: DMTCP does not recognize those with it.

The folder holds `tickets.json` (written by the worker, 0600): `{"tickets": [...], "nodes": [addresses]}`. The server
writes `port.json` there once it listens, and `events.jsonl`, one object a line; the last one is
`{"event": "done", "bad": {...}}`. It ends with 0 when all ranks have finalized and with 1 when one aborted or was lost.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import sys
import time
from typing import Any, Dict, List, Optional

from ..files import read_json, write_json
from .wire import LineReader, WireError
from .wireup import Refused, Wireup

LOST_HOLD_S = 1.0
"""Between a lost rank and the server's own end, which ends the others: the lost one's exit code is reported first.

The same where a rank aborts with a code that is no exit code: MPICH's own, because it misses a rank.
"""

STRANGERS = 64
"""Connections at once, beyond one a rank, that have not yet shown a ticket; more are closed unheard."""

_LIBC = ctypes.CDLL(None, use_errno=True)


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = LineReader()
        self.known = False


class Server:
    """`nodes`: the addresses that ranks may come from; none: from anywhere."""

    def __init__(self, folder: str, listener: socket.socket, tickets: List[int], nodes: List[str]) -> None:
        self._folder = folder
        self._nodes = frozenset(nodes)
        self._wireup = Wireup(tickets)
        self._told = 0
        self._peers: Dict[int, _Peer] = {}
        self._poll = select.poll()
        self._listener = listener
        self.port = int(self._listener.getsockname()[1])

    def run(self) -> int:
        """The exit code."""
        self._poll.register(self._listener.fileno(), select.POLLIN)
        write_json(os.path.join(self._folder, "port.json"), {"port": self.port})
        while not self._wireup.over:
            for descriptor, _events in self._poll.poll():
                if descriptor in self._peers:
                    self._receive(self._peers[descriptor])
                elif self._listener.fileno() == descriptor:
                    self._accept()
            self._tell()
        bad = {str(rank): state for rank, state in sorted(self._wireup.bad.items())}
        self._note("done", bad=bad)
        if any(state == "lost" for state in bad.values()) or not 0 <= self._wireup.abort_code <= 255:
            time.sleep(LOST_HOLD_S)
        return self._wireup.exit_code or 0

    def _accept(self) -> None:
        descriptor = _LIBC.accept(self._listener.fileno(), None, None)
        if descriptor < 0:
            return
        connection = socket.socket(fileno=descriptor)
        try:
            address = str(connection.getpeername()[0])
        except OSError:
            connection.close()
            return
        strangers = sum(1 for peer in self._peers.values() if not peer.known)
        if strangers >= STRANGERS + self._wireup.size or (self._nodes and address not in self._nodes):
            self._note("refused", address=address, why="not one of the job's nodes" if self._nodes else "too many")
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers[descriptor] = _Peer(connection)
        self._poll.register(descriptor, select.POLLIN)

    def _receive(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._close(peer)
            return
        try:
            for line in peer.reader.feed(data):
                answers = self._wireup.receive(peer.connection.fileno(), line)
                self._tell()  # before the answer: a rank may end as soon as its finalize is acknowledged
                for descriptor, answer in answers:
                    self._send(descriptor, answer)
                peer.known = True
        except (WireError, Refused) as error:
            self._note("refused", address=_address(peer.connection), why=str(error))
            self._close(peer)
            return
        if self._wireup.complete and self._listener.fileno() >= 0:
            # No other rank is to come: one door less, and one descriptor less to move.
            self._poll.unregister(self._listener.fileno())
            self._listener.close()
            self._note("complete")

    def _send(self, descriptor: int, answer: bytes) -> None:
        peer = self._peers.get(descriptor)
        if peer is None:
            return
        try:
            # Never waits: a rank that asks and does not read must not stop the others.
            whole = peer.connection.send(answer, socket.MSG_DONTWAIT) == len(answer)
        except OSError:
            whole = False
        if not whole:
            try:
                peer.connection.shutdown(socket.SHUT_RDWR)  # its end is dealt with where its end-of-file is read
            except OSError:
                pass

    def _close(self, peer: _Peer) -> None:
        descriptor = peer.connection.fileno()
        if self._peers.pop(descriptor, None) is None:
            return
        self._poll.unregister(descriptor)
        peer.connection.close()
        self._wireup.gone(descriptor)

    def _tell(self) -> None:
        events = self._wireup.events
        for event, fields in events[self._told :]:
            self._note(event, **fields)
        self._told = len(events)

    def _note(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "at": round(time.time(), 3), **fields}) + "\n"
        path = os.path.join(self._folder, "events.jsonl")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode("ascii"))
        finally:
            os.close(descriptor)


def _listen(host: str, size: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    descriptor = _LIBC.socket(int(family), int(socket.SOCK_STREAM), 0)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "no socket")
    listener = socket.socket(fileno=descriptor)
    listener.bind((host, 0))
    listener.listen(max(128, size))
    return listener


def _address(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:
        return "unknown"


def main(folder: str, host: Optional[str], descriptor: int = -1) -> int:
    try:
        given = read_json(os.path.join(folder, "tickets.json"))
        tickets = [int(ticket) for ticket in given["tickets"]]
        listener = socket.socket(fileno=descriptor) if host is None else _listen(host, len(tickets))
        server = Server(folder, listener, tickets, [str(node) for node in given["nodes"]])
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write("ejb pmi: cannot begin: %s\n" % error)
        return 2
    return server.run()
