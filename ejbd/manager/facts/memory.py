"""What a daemon remembers from one transaction to the next, and what may change it.

It belongs to the writer: functions of a transaction on its thread change it, one after the other. Those that only read
run on threads of their own at the same time. Each of them gets a snapshot, so that nothing changes under its hands and
nothing that it notes goes any further. `seen` is told by the event loop, too: single keys, which needs no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ejbd.manager.facts.promises import Promises
from ejbd.manager.facts.room.turns import Turns
from ejbd.manager.facts.usage import Usage

RECENT_WORKERS = 50  # of one user
Offer = tuple[str, dict[str, Any]]
"""A node, and what its worker said of it: `engines`, `dmtcp`."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What of a batch job that waits is otherwise than it was asked for: held, its walltime (None: as asked)."""

    held: bool = False
    walltime_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """What the reports of a subjob's or job's workers have left in the database, and how many were dropped."""

    bytes: int = 0
    dropped: int = 0


@dataclass
class Memory:
    """Times are seconds since the epoch."""

    seen: dict[str, float] = field(default_factory=dict)  # worker id -> last heard of
    offers: dict[str, tuple[Offer, ...]] = field(default_factory=dict)  # of each user's latest workers
    reported: dict[str, Reported] = field(default_factory=dict)  # by subjobs and jobs; no reader is told
    fitting: dict[tuple[str, str], float] = field(default_factory=dict)  # (queue, batch job that fits) -> since when
    auto_on: dict[str, bool] = field(default_factory=dict)  # queue of elasticity=auto -> whether it was on before
    promises: Promises = field(default_factory=Promises)  # of room to waiting jobs
    usage: Usage = field(default_factory=Usage)  # by users, lately; no reader is told
    gap_verdicts: Mapping[str, str] = field(default_factory=dict)  # job -> why it was not sent into a gap at last
    raises_from_s: float = 0.0  # when limits may be lowered again that have to be raised
    changed: dict[str, Changed] | None = None  # by subjobs, as told (None: not read yet)
    rests: bool = False  # the batch system's scheduling is switched off, as told
    turns: Turns = field(default_factory=Turns)  # of J0s; no reader is told
    stops_stand: bool = True  # a queue may be stopped that lost (True: not known yet)

    def snapshot(self) -> Memory:
        """As it is now, for a reader. A dict is copied in one step, without another thread between."""
        return replace(
            self,
            seen=self.seen.copy(),
            offers=self.offers.copy(),
            fitting=self.fitting.copy(),
            auto_on=self.auto_on.copy(),
            promises=self.promises.snapshot(),
            changed=None if self.changed is None else self.changed.copy(),
        )

    def shift(self, by_s: float) -> None:
        """The clock was set."""
        for id in list(self.seen):
            self.seen[id] += by_s
        self.fitting.update({key: since_s + by_s for key, since_s in self.fitting.items()})
        self.promises.shift(by_s)
        self.usage.shift(by_s)
        self.turns.shift()
