"""What a PMI-1 server answers, without a socket in sight.

A rank comes with its *ticket* (the PMI_ID of its environment) and gets its rank. Only the launch and the rank know that
number. From then on it puts what others need to reach it, waits in barriers, and says goodbye.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from .wire import KEYLEN_MAX, KVSNAME_MAX, VALLEN_MAX, WireError, message, parse

KVS = "kvs_0"

CONNECTED = "connected"
INITIALIZED = "initialized"
FINALIZED = "finalized"
ABORTED = "aborted"
LOST = "lost"

Sends = List[Tuple[int, bytes]]


class Refused(Exception):
    """This connection is not let in, or breaks the protocol: one sentence; it is closed."""


class Wireup:
    """The state of one job of `size` ranks. Connections are numbers of the caller's choice.

    `events` collects what a person or the worker should know: (event, fields).
    """

    def __init__(self, tickets: Sequence[int]) -> None:
        self.size = len(tickets)
        self._rank_of = {ticket: rank for rank, ticket in enumerate(tickets)}
        self._ranks: Dict[int, int] = {}  # connection -> rank
        self._barrier: List[int] = []
        # Every rank a node of its own: no shared memory between ranks, so that any of them can move alone.
        self._values = {"PMI_process_mapping": "(vector,(0,%d,1))" % self.size}
        self.states: Dict[int, str] = {}
        self.events: List[Tuple[str, Dict[str, object]]] = []
        self.exit_code: Optional[int] = None
        self.abort_code = 0

    @property
    def complete(self) -> bool:
        """Every rank has come: no other process is to be let in."""
        return len(self.states) == self.size

    @property
    def over(self) -> bool:
        """Nothing more is to be expected."""
        return self.exit_code is not None

    @property
    def bad(self) -> Dict[int, str]:
        """The ranks that did not finalize."""
        return {rank: self.states.get(rank, "never came") for rank in range(self.size) if not self._good(rank)}

    def receive(self, connection: int, line: str) -> Sends:
        """What to send upon one line. Raises Refused."""
        try:
            words = parse(line)
        except WireError as error:
            raise Refused(str(error)) from None
        command = words.get("cmd", "")
        rank = self._ranks.get(connection)
        if rank is None:
            if command != "initack":
                raise Refused("the first line is not an initack")
            return self._let_in(connection, words)
        answer = getattr(self, "_on_" + command, None) if command.isidentifier() else None
        if answer is None:
            self.events.append(("unsupported", {"rank": rank, "command": command or words.get("mcmd", "")}))
            return [(connection, message((command or "spawn") + "_result", "rc=-1", "msg=not_supported"))]
        sends: Sends = answer(connection, rank, words)
        return sends

    def gone(self, connection: int) -> None:
        """A connection has ended."""
        rank = self._ranks.pop(connection, None)
        if connection in self._barrier:
            self._barrier.remove(connection)
        if rank is None:
            return
        if self.states[rank] not in (FINALIZED, ABORTED):
            self.states[rank] = LOST
            self.events.append(("lost", {"rank": rank}))
            self._end(1)
        elif not self._ranks and self.complete:
            self._end(1 if self.bad else 0)

    def _good(self, rank: int) -> bool:
        return self.states.get(rank) == FINALIZED

    def _end(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code

    def _let_in(self, connection: int, words: Dict[str, str]) -> Sends:
        try:
            ticket = int(words.get("pmiid", ""))
        except ValueError:
            raise Refused("an initack without a number") from None
        rank = self._rank_of.get(ticket)
        if rank is None:
            raise Refused("a wrong ticket")
        if rank in self.states:
            raise Refused("rank %d has come before" % rank)
        self._ranks[connection] = rank
        self.states[rank] = CONNECTED
        self.events.append(("connected", {"rank": rank}))
        return [
            (connection, message("initack")),
            (connection, message("set", "size=%d" % self.size)),
            (connection, message("set", "rank=%d" % rank)),
            (connection, message("set", "debug=0")),
        ]

    # -- commands of a rank that was let in ---------------------------------------------------------------------------

    def _on_init(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        if words.get("pmi_version") != "1":
            answer = message("response_to_init", "pmi_version=1", "pmi_subversion=1", "rc=-1")
            return [(connection, answer)]
        self.states[rank] = INITIALIZED
        return [(connection, message("response_to_init", "pmi_version=1", "pmi_subversion=1", "rc=0"))]

    def _on_get_maxes(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        maxes = ("kvsname_max=%d" % KVSNAME_MAX, "keylen_max=%d" % KEYLEN_MAX, "vallen_max=%d" % VALLEN_MAX)
        return [(connection, message("maxes", *maxes))]

    def _on_get_appnum(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        return [(connection, message("appnum", "appnum=0"))]

    def _on_get_my_kvsname(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        return [(connection, message("my_kvsname", "kvsname=" + KVS))]

    def _on_get_universe_size(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        return [(connection, message("universe_size", "size=%d" % self.size))]

    def _on_put(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        key, value = words.get("key", ""), words.get("value", "")
        # Bounded: a rank gone mad must not eat the memory of its job's node.
        if not key or len(key) > KEYLEN_MAX or len(value) > VALLEN_MAX or len(self._values) > 64 * (self.size + 1):
            return [(connection, message("put_result", "rc=-1", "msg=bad_key_or_value"))]
        self._values[key] = value
        return [(connection, message("put_result", "rc=0", "msg=success"))]

    def _on_get(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        value = self._values.get(words.get("key", ""))
        if value is None:
            return [(connection, message("get_result", "rc=-1", "msg=key_not_found", "value=unknown"))]
        return [(connection, message("get_result", "rc=0", "msg=success", "value=" + value))]

    def _on_barrier_in(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        if connection in self._barrier:
            raise Refused("rank %d is in the barrier already" % rank)
        self._barrier.append(connection)
        if len(self._barrier) < self.size:
            return []
        waiting, self._barrier = self._barrier, []
        return [(one, message("barrier_out")) for one in waiting]

    def _on_finalize(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        self.states[rank] = FINALIZED
        self.events.append(("finalize", {"rank": rank}))
        return [(connection, message("finalize_ack"))]

    def _on_abort(self, connection: int, rank: int, words: Dict[str, str]) -> Sends:
        try:
            code = int(words.get("exitcode", "1"))
        except ValueError:
            code = 1
        self.states[rank] = ABORTED
        self.abort_code = self.abort_code or code
        self.events.append(("abort", {"rank": rank, "code": code}))
        self._end(1)  # an aborting rank waits for ever: that the server leaves is what ends it
        return []
