"""What a transaction of the manager works with: one session, one moment, the settings, and what is known by now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.config import QueueSettings, Settings
from ejbd.core.view import ClusterView
from ejbd.manager.facts.memory import Memory, Offer
from ejbd.manager.facts.past.history import History, Remembered
from ejbd.manager.facts.promises import Promises
from ejbd.manager.facts.subscribers import Subscribers
from ejbd.manager.hands.hands import Hands
from ejbd.manager.hands.spool import Spool
from ejbd.store.changes import WriterSession
from ejbd.store.models import Job, QueueOverride, QueueWindow
from ejbd.store.transitions import QUEUES_TOPIC, WAKE


@dataclass
class Overridden:
    """Settings of queues that were changed at run time: as a transaction of the writer read them, until one changes
    them (:data:`ejbd.store.transitions.QUEUES_TOPIC`). None: to be read."""

    settings: dict[str, QueueSettings] | None = None


@dataclass
class Context:
    """One transaction at time `now` (seconds since the epoch). `view` is the latest poll's, if there was one.

    `spool_speed`: bytes a second that the daemon itself wrote, for as long as no checkpoint has told better.
    `up_since`: when this daemon started, before which no worker could tell it anything.
    """

    session: Session
    now: float
    settings: Settings
    hands: Hands
    view: ClusterView | None = None
    memory: Memory = field(default_factory=Memory)  # the writer's own, or a snapshot of it
    # Of DMTCP, by user, once it was asked for (ejbd.manager.facts.placing.node_limit).
    plugin: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    spool_speed: float | None = None
    remembered: Remembered = field(default_factory=Remembered)  # what earlier transactions read of the history
    up_since: float = 0.0
    looked_s: float | None = None  # when the poll before this one looked
    left_behind: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # reports, by their file
    subscribers: Subscribers = field(default_factory=Subscribers)  # to what ends
    overridden: Overridden = field(default_factory=Overridden)
    _queues: dict[str, QueueSettings] | None = None

    def spool_of(self, job_id: str) -> Spool:
        """The spool of a job: its user's."""
        return self.hands.spool_by(lambda: self.session.scalars(select(Job.user).where(Job.id == job_id)).one())

    @property
    def seen(self) -> dict[str, float]:
        return self.memory.seen

    def offers_of(self, user: str) -> tuple[Offer, ...]:
        """What the user's latest workers said of their nodes: of no weight for other users' jobs."""
        return self.memory.offers.get(user, ())

    @property
    def fitting(self) -> dict[tuple[str, str], float]:
        return self.memory.fitting

    @property
    def auto_on(self) -> dict[str, bool]:
        return self.memory.auto_on

    @property
    def promises(self) -> Promises:
        return self.memory.promises

    @property
    def gap_verdicts(self) -> Mapping[str, str]:
        return self.memory.gap_verdicts

    def waited_s(self, since_s: float) -> float:
        """For how long since `since_s` workers could have told us something: not while there was no daemon."""
        return self.now - max(since_s, self.up_since)

    def queue_settings(self, name: str) -> QueueSettings:
        """The TOML file's settings of a queue, what was changed at run time, and on top the windows in force."""
        if self._queues is None:
            # What this very transaction has changed is not in memory yet.
            changes_here = QUEUES_TOPIC in self.session.info.get(WAKE, ())
            self._queues = None if changes_here else self.overridden.settings
            if self._queues is not None:
                return self._queues.get(name) or self.settings.queue_settings(name)
            self._queues = {
                queue: self.settings.queue_settings(queue).having(changed)
                for queue, changed in self.session.execute(select(QueueOverride.name, QueueOverride.settings))
            }
            held = select(QueueWindow.queue, QueueWindow.settings).where(QueueWindow.in_force)
            for queue, changed in self.session.execute(held.order_by(QueueWindow.id)):
                below = self._queues.get(queue) or self.settings.queue_settings(queue)
                self._queues[queue] = below.having(changed)
            # What a transaction reads that may be undone, or that others have overtaken, is for itself only.
            if isinstance(self.session, WriterSession) and not changes_here:
                self.overridden.settings = self._queues
        return self._queues.get(name) or self.settings.queue_settings(name)

    def read_queues_again(self) -> None:
        """Since this very transaction has changed their settings."""
        self._queues = None

    @cached_property
    def history(self) -> History:
        """What earlier jobs have taught."""
        return History(self.session, self.now, self.remembered, self.spool_speed)
