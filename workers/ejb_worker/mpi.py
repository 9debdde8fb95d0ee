"""The wire-up of an epoch's MPI ranks: the PMI server on the epoch's home, and what every rank must know.

`<epoch_dir>/pmi` holds the tickets by which ranks are let in, the server's port and the record of what it saw. A rank
that is restored from a checkpoint keeps its connection to the server, which is restored with it and goes on writing to
the folder of the epoch that it began in.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Mapping, Optional

from .files import make_dir, read_json, write_json

SERVICE = "pmi"
LAST_TICKET = 2**31 - 1  # PMI_ID is a C int

NO_FINALIZE = 1
"""The code of a rank that left with 0 and without MPI_Finalize."""


class MpiEpoch:
    """`settings` is the payload's `mpi`: `{"env": {...}, "nodes": [addresses]}`."""

    def __init__(self, settings: Mapping[str, Any], *, epoch_dir: str, size: int, address: str) -> None:
        self._env = {str(name): str(value) for name, value in settings["env"].items()}
        self._nodes = [str(node) for node in settings["nodes"]]
        self.folder = os.path.join(epoch_dir, "pmi")
        self._size = size
        self._address = address
        self._tickets: List[int] = []
        self._port: Optional[int] = None
        self._host = ""

    def server(self) -> List[str]:
        """Write the tickets; the server's command line. Only where the epoch is at home."""
        make_dir(self.folder)
        tickets: List[int] = []
        while len(tickets) < self._size:
            ticket = int.from_bytes(os.urandom(4), "big") & LAST_TICKET
            if ticket not in tickets:
                tickets.append(ticket)
        content = {"tickets": tickets, "nodes": self._nodes, "host": self._address}
        write_json(os.path.join(self.folder, "tickets.json"), content)
        code = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"
        words = [sys.executable or "python3", "-I", "-S", "-c", program, code]
        return [*words, "pmi", "--folder", self.folder, "--host", self._address]

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

    def environment(self, rank: int) -> Dict[str, str]:
        """What a rank needs besides."""
        env = dict(self._env)
        if self._port is not None:
            env["PMI_PORT"] = "%s:%d" % (self._host, self._port)
            env["PMI_ID"] = str(self._tickets[rank])
        return env

    def resume(self, folder: str) -> None:
        """The ranks are restored, and with them a server that began in another epoch's folder."""
        self.folder = folder
        self._port = None

    def exit_code(self, rank: int, code: int) -> int:
        """The code to report for a rank whose process ended with `code`.

        After MPI_Abort every rank ends with 15, the aborting one too: the code it asked for is in the record alone. A
        rank that left with 0 but without MPI_Finalize has failed.
        """
        connected = finalized = False
        for event in self.events():
            if event["event"] == "abort" and code != 0:
                return int(event["code"]) or 1
            if event.get("rank") == rank:
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
            if event["event"] == "abort":
                return "rank %s called MPI_Abort with code %s" % (event["rank"], event["code"])
            if event["event"] == "lost":
                return "rank %s left without MPI_Finalize" % event["rank"]
        return "the PMI server ended"
