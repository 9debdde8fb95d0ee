"""Effects on what the daemon keeps in memory from one transaction to the next (ejbd.manager.facts.memory)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ejbd.manager.effects.base import Effect


@dataclass(frozen=True, slots=True)
class Promise(Effect):
    """Room that a job gives back is kept for the batch job `to`, of `user`, for which it was given.

    `coming_s`: how long it may take at most until it is free.
    """

    to: str
    user: str
    giver: str
    subjobs: Sequence[str]
    held: int
    coming_s: float


@dataclass(frozen=True, slots=True)
class Keep(Effect):
    """Put values into the writer's memory, by the names of its fields."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeepIn(Effect):
    """Put one value into a table of the writer's memory."""

    table: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class KeepOnly(Effect):
    """Forget all that a table of the writer's memory has of others than these."""

    table: str
    keys: Collection[str]


@dataclass(frozen=True, slots=True)
class Offered(Effect):
    """What a user's worker says that its node offers."""

    user: str
    node: str
    offer: Mapping[str, Any]
