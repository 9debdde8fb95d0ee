"""Limits of a whole site, which a replay of a past day plays: of accounts, QOS and users, on all that runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ejbd.core.room.limits import needs
from ejbd.core.view import AccountLimit, Counted

PLAYED = frozenset({Counted.JOBS, Counted.PROCESSORS, Counted.NODES, Counted.PROCESSOR_SECONDS})


class Take(NamedTuple):
    """So much of a limit, by its number, a job takes while it runs. `held`: too little of it keeps the job waiting."""

    limit: int
    amount: float
    held: bool = True


class Each(StrEnum):
    """For what a limit holds by itself: for all that it counts together, for each user of it, or each account."""

    ALL = "all"
    USER = "user"
    ACCOUNT = "account"


@dataclass(frozen=True, slots=True)
class SiteLimit:
    """A limit on what runs at once. `user`: it is of that user alone."""

    limit: AccountLimit
    each: Each = Each.ALL
    user: str = ""


@dataclass(frozen=True, slots=True)
class SiteRules:
    """What the site's accounts say. `users`: those that were told; of jobs of others no limit is known."""

    limits: tuple[SiteLimit, ...] = ()
    users: frozenset[str] = frozenset()
    of_all: bool = False  # the site enforces none, which is known of all users

    def knows(self, user: str) -> bool:
        return self.of_all or user in self.users


class Limits:
    """Limits by their numbers: each user or account of one that holds for each has a number of its own."""

    def __init__(self, rules: SiteRules) -> None:
        self._rules = rules
        self._numbers: dict[tuple[int, str], int] = {}
        self._of: dict[tuple[str, str, str, str], list[tuple[SiteLimit, int, bool]]] = {}
        self._most: list[float] = []

    @property
    def most(self) -> tuple[float, ...]:
        return tuple(self._most)

    def takes(
        self, user: str, charged: tuple[str, str], queue: str, processors: int, walltime_s: float, per_node: int
    ) -> tuple[Take, ...]:
        """What a job that is charged so (account and QOS) takes of each limit."""
        kind = (user, *charged, queue)
        found = self._of.get(kind)
        if found is None:
            found = self._of[kind] = self._found(*kind)
        return tuple(Take(at, needs(one.limit, processors, walltime_s, per_node), held) for one, at, held in found)

    def holds(self, takes: Sequence[Take], counted: str, user: str, charged: tuple[str, str], queue: str) -> bool:
        """Whether a limit of that kind is among those that can keep such a job waiting."""
        known = {at for one, at, held in self._of.get((user, *charged, queue), []) if one.limit.counted.name == counted}
        return any(one.held and one.limit in known for one in takes)

    def _found(self, user: str, account: str, qos: str, queue: str) -> list[tuple[SiteLimit, int, bool]]:
        found = []
        for at, one in enumerate(self._rules.limits):
            if one.user in ("", user) and one.limit.counts(account, qos, queue):
                of = {Each.ALL: "", Each.USER: user, Each.ACCOUNT: account}[one.each]
                number = self._numbers.setdefault((at, of), len(self._most))
                if number == len(self._most):
                    self._most.append(one.limit.most)
                found.append((one, number, one.limit.holds_for(account, qos, queue)))
        return found
