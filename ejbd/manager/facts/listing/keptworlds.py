"""Jobs that run, with their rows, kept in memory between polls: most of them go on as they are for hours.

The rows of a job are kept until a commit has changed one of them. So what they say is what would be read now. Only
facts are asked of them: what writes loads the rows that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select
from sqlalchemy.orm import Session

from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld


@dataclass
class KeptWorld(JobWorld):
    """A job for reading alone. Each query about it is made once."""

    _answers: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)

    def read_rows(self, query: Select[Any], **given: Any) -> list[Any]:
        key = (query, *given.items())
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = super().read_rows(query, **given)
        return found

    def at(self, ctx: Context) -> KeptWorld:
        """The same job in another transaction: what is known of costs may be other by then."""
        self.ctx, self._cost, self._overheads = ctx, None, None
        return self


def _always(_session: Session, _id: str) -> bool:
    return True


@dataclass
class KeptWorlds:
    """By their job's id. `has_changed`: whether a job's rows may be other ones by now, for the writer's thread."""

    has_changed: Callable[[Session, str], bool] = _always
    _worlds: dict[str, KeptWorld] = field(default_factory=dict)

    def get(self, ctx: Context, id: str) -> KeptWorld | None:
        """None: its rows have to be read."""
        world = self._worlds.get(id)
        if world is None or self.has_changed(ctx.session, id):
            return None
        return world if world.ctx is ctx else world.at(ctx)

    def keep(self, world: KeptWorld) -> None:
        self._worlds[world.job.id] = world

    def drop(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._worlds.pop(id, None)

    def clear(self) -> None:
        self._worlds.clear()

    def __contains__(self, id: str) -> bool:
        return id in self._worlds
