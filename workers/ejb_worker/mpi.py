"""The wire-up of an epoch's MPI ranks: the PMI server on the epoch's home, and what every rank must know.

Every launch of several ranks is wired up, since it does not show from outside whether a script starts MPI ranks. Where
the server need not be a member of the computation, the worker itself opens the door. The server is started when a rank
knocks: a program without MPI never waits for it, and never has it.

`<epoch_dir>/pmi` holds the tickets by which ranks are let in, the server's port and the record of what it saw. A rank
that is restored from a checkpoint keeps its connection to the server. The server is restored with it and goes on
writing to the folder of the epoch that it began in.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, Dict, List, Mapping, Optional

from .files import make_dir, read_json, write_json

SERVICE = "pmi"
LAST_TICKET = 2**31 - 1  # PMI_ID is a C int

_ABORTED = frozenset((15, 128 + 15, 128 + 9))

NO_SERVER = 1
"""The code of a rank that ends because the server has left."""

NO_FINALIZE = 1
"""The code of a rank that left with 0 and without MPI_Finalize."""


class MpiEpoch:
    """`settings` is the payload's `mpi`: `{"env": {...}, "nodes": [addresses], "preload": library}`."""

    def __init__(self, settings: Mapping[str, Any], *, epoch_dir: str, size: int, address: str) -> None:
        self._env = {str(name): str(value) for name, value in settings["env"].items()}
        self._nodes = [str(node) for node in settings["nodes"]]
        self._preload = str(settings.get("preload") or "")
        self._door: Optional[socket.socket] = None
        self.folder = os.path.join(epoch_dir, "pmi")
        self._size = size
        self._address = address
        self._tickets: List[int] = []
        self._port: Optional[int] = None
        self._host = ""

    def open_door(self) -> socket.socket:
        """Listen for ranks, and return where. Only where the epoch is at home."""
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        door = self._door = socket.socket(family, socket.SOCK_STREAM)
        door.bind((self._address, 0))
        door.listen(max(128, self._size))
        self._write_tickets()
        write_json(os.path.join(self.folder, "port.json"), {"port": door.getsockname()[1]})
        return door

    def close_door(self) -> Optional[int]:
        """The descriptor that was listened at, where it was open; it is free from now on."""
        door, self._door = self._door, None
        if door is None:
            return None
        descriptor = door.fileno()
        door.close()
        return descriptor

    def server(self, door: Optional[int] = None) -> List[str]:
        """The server's command line; without a descriptor to listen at it opens one itself and writes down where."""
        if door is None:
            self._write_tickets()
        code = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"
        words = [sys.executable or "python3", "-I", "-S", "-c", program, code]
        where = ["--host", self._address] if door is None else ["--fd", str(door)]
        return [*words, "pmi", "--folder", self.folder, *where]

    def _write_tickets(self) -> None:
        make_dir(self.folder)
        tickets: List[int] = []
        while len(tickets) < self._size:
            ticket = int.from_bytes(os.urandom(4), "big") & LAST_TICKET
            if ticket not in tickets:
                tickets.append(ticket)
        content = {"tickets": tickets, "nodes": self._nodes, "host": self._address}
        write_json(os.path.join(self.folder, "tickets.json"), content)

    def ready(self) -> bool:
        """Whether the server listens."""
        try:
            os.listdir(self.folder)  # what a network file system remembers to be missing is looked for again
            self._port = int(read_json(os.path.join(self.folder, "port.json"))["port"])
            given = read_json(os.path.join(self.folder, "tickets.json"))
            self._tickets = [int(ticket) for ticket in given["tickets"]]
            self._host = str(given["host"])
        except (OSError, ValueError, KeyError):
            return False
        return True

    def environment(self, rank: int, given: Mapping[str, str]) -> Dict[str, str]:
        """What a rank needs besides what it is given."""
        env = dict(self._env)
        if self._preload:
            env["LD_PRELOAD"] = " ".join(part for part in (self._preload, given.get("LD_PRELOAD")) if part)
        if self._port is not None:
            env["PMI_PORT"] = "%s:%d" % (self._host, self._port)
            env["PMI_ID"] = str(self._tickets[rank])
            env["PMI_RANK"] = str(rank)  # as mpiexec has it: scripts around a program go by them
            env["PMI_SIZE"] = str(self._size)
        return env

    def resume(self, folder: str) -> None:
        """The ranks are restored, and with them a server that began in another epoch's folder."""
        self.folder = folder
        self._port = None

    def exit_code(self, rank: int, code: int) -> int:
        """The code to report for a rank if its process ended with `code`.

        After MPI_Abort every rank ends with 15, the aborting one too, or with 1 when it misses the server. The code
        that was asked for is in the record alone. A rank that crashed keeps its own code: others abort when they miss
        it. A rank that left with 0 but without MPI_Finalize has failed.
        """
        connected = finalized = lost = False
        for event in self.events():
            if event["event"] == "abort":
                because = code in _ABORTED or (code == NO_SERVER and not lost)
                if because or (code != 0 and event["rank"] == rank):
                    return int(event["code"]) % 256 or 1
            if event.get("rank") == rank:
                lost = lost or event["event"] == "lost"
                connected = connected or event["event"] == "connected"
                finalized = finalized or event["event"] == "finalize"
        if code == 0 and connected and not finalized:
            return NO_FINALIZE
        return code

    def events(self) -> List[Dict[str, Any]]:
        """The record, as far as it is whole."""
        found = []
        try:
            with open(os.path.join(self.folder, "events.jsonl"), encoding="ascii") as file:
                for line in file:
                    found.append(json.loads(line))
        except (OSError, ValueError):
            pass
        return found

    def why(self) -> str:
        """Why the server left before all had finalized, in one sentence."""
        for event in self.events():
            if event["event"] == "abort" and not 0 <= int(event["code"]) <= 255:
                return "rank %s misses another rank (MPICH's own code %s)" % (event["rank"], event["code"])
            if event["event"] == "abort":
                return "rank %s called MPI_Abort with code %s" % (event["rank"], event["code"])
            if event["event"] == "lost":
                return "rank %s left without MPI_Finalize" % event["rank"]
        return "the PMI server ended"
