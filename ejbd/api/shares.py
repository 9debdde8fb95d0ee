"""The parties of connections, and which goes where there are too many: a user, or an address, locks out only itself.

A connection is its user's where the kernel says which that is (on the unix socket, and where both ends are on this
machine), and else its address's, until a request on it has said more. Workers and administrators have a quarter for
themselves, and so have users: those of addresses have half together, however many addresses there are, and those of
workers three quarters, of which the subjob with the most loses first. No other party has more than a quarter, and a
user no more than `limits.user_connections`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from fastapi import Request

WORKERS = "workers of "  # and a subjob: its job's own code may open as many as it likes
ADMINISTRATORS = "administrators"
_FIRST = (WORKERS, ADMINISTRATORS)
SHARES = 4
_OF_USERS = ("user ", "uid ")  # how the parties of users begin; an address may be that of many
OF_ADDRESSES = "address "  # and those of connections that have not said which user sends


class Use(IntEnum):
    """What a connection is used for; of one party's those of the lowest go first, and of these the oldest."""

    IDLE = 0  # between two requests, which the client repeats elsewhere
    STREAM = 1  # events or output, which the client takes up again where they ended
    REQUEST = 2


def mark_as_stream(request: Request) -> None:
    """The answer to this request goes on for long, and its client can take it up again where it ended."""
    if (connection := getattr(request.state, "connection", None)) is not None:
        connection.streams = True


class Held(Protocol):
    """A connection. `since`: when it was made, by the monotonic clock."""

    party: str
    since: float

    @property
    def use(self) -> Use: ...

    def cut(self) -> None:
        """End it at once."""
        ...


class Shares:
    """The connections of one server, by party."""

    def __init__(self, most_of_user: int | None = None) -> None:
        self._most_of_user = most_of_user
        self._held: dict[str, set[Held]] = {}
        self._total = self._ordinary = self._nameless = self._workers = 0

    def enter(self, one: Held, most: int) -> None:
        """A new connection of `one.party`; another is cut where there are more than `most`, or too many of a party."""
        self._count(one, 1)
        self._held.setdefault(one.party, set()).add(one)
        self._make_room(one, most)

    def leave(self, one: Held) -> None:
        """It has ended. Repeatable."""
        of_party = self._held.get(one.party, set())
        if one not in of_party:
            return
        of_party.remove(one)
        if not of_party:
            del self._held[one.party]
        self._count(one, -1)

    def move(self, one: Held, party: str, most: int) -> None:
        """A request on it has said which user sends it."""
        if one.party == party:
            return
        self.leave(one)
        one.party = party
        self.enter(one, most)

    def _count(self, one: Held, by: int) -> None:
        self._total += by
        if not one.party.startswith(_FIRST):
            self._ordinary += by
        if one.party.startswith(WORKERS):
            self._workers += by
        if one.party.startswith(OF_ADDRESSES):
            self._nameless += by

    def _make_room(self, newest: Held, most: int) -> None:
        share = max(1, most // SHARES)
        if not newest.party.startswith(_FIRST) and len(self._held[newest.party]) > self._share(newest.party, share):
            self._cut_of(newest.party)
        if self._nameless > 2 * share:
            self._cut_of(self._largest(lambda party: party.startswith(OF_ADDRESSES)))
        if self._workers > 3 * share:
            self._cut_of(self._largest(lambda party: party.startswith(WORKERS)))
        if self._total <= most and self._ordinary <= most - share:
            return
        if self._ordinary:
            self._cut_of(self._largest(lambda party: not party.startswith(_FIRST)))
        else:
            self._cut(newest)

    def _largest(self, which: Callable[[str], bool]) -> str:
        """The party with the most connections; of those with as many the one that came first, not the newcomer."""
        return max(filter(which, self._held), key=lambda party: len(self._held[party]))

    def _share(self, party: str, share: int) -> int:
        if self._most_of_user is None or not party.startswith(_OF_USERS):
            return share
        return min(share, self._most_of_user)

    def _cut_of(self, party: str) -> None:
        self._cut(min(self._held[party], key=lambda one: (one.use, one.since)))

    def _cut(self, one: Held) -> None:
        self.leave(one)
        one.cut()
