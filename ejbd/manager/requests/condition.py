"""Whether the daemon does its work, and what keeps it from it."""

from __future__ import annotations

from collections.abc import Callable

from ejbd.errors import Code
from ejbd.manager.poll.poller import Poller
from ejbd.manager.service.health import Fault, Health, ToldHealth
from ejbd.manager.world import World


class Condition:
    """`has_stopped`: whether the task that acts on the batch system has ended."""

    def __init__(self, world: World, poller: Poller, health: Health, has_stopped: Callable[[], bool]) -> None:
        self._world = world
        self._poller = poller
        self._health = health
        self._has_stopped = has_stopped

    def faults(self) -> list[Fault]:
        """What keeps the daemon from its work, the cause before what comes of it."""
        found = self._health.faults()
        if self._has_stopped():
            found.append(Fault(Code.INTERNAL, "the task that acts on the batch system has ended", "restart ejbd", True))
        if self._poller.error:
            hint = "no job fails for it; the daemon asks again with every poll"
            found.append(Fault(Code.BATCH_UNAVAILABLE, self._poller.error, hint))
        elif self._world.view is None and not found:
            found.append(Fault(Code.BATCH_UNAVAILABLE, "the batch system has not answered yet", "ask again in seconds"))
        return found

    def health(self) -> ToldHealth:
        """Whether the daemon does its work, and what keeps it from it."""
        view, faults = self._world.view, self.faults()
        return {
            "ok": not faults,
            "faults": [fault.to_json() for fault in faults],
            "batch": self._world.batch.name,
            "batch_error": self._poller.error,
            "last_poll_s": view.time_s if view else None,
            "polls": self._poller.polls,
            "failed_polls": self._poller.failed_polls,
            "unparsed_rows": view.unparsed if view else 0,
            "blind": view.blind if view else "",
            "started_s": self._world.started_s,
        }
