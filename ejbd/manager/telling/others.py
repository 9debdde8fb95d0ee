"""What other jobs gained and lost by elastic ones, put together of the days that were replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.manager.facts.past.hindsight import DAY_S
from ejbd.manager.telling.savings import By, take_in
from ejbd.store.models import OtherDay, OtherReplay


@dataclass(slots=True)
class Others:
    """Other jobs together; `error_s` is how far EASY's plan for what came is off their real starts, all in all.

    `unsure`: those that waited for a limit which the replay does not know."""

    key: str
    jobs: int = 0
    gained: int = 0
    gained_s: float = 0.0
    lost: int = 0
    lost_s: float = 0.0
    unsure: int = 0
    error_s: float = 0.0
    before_real_s: float = 0.0

    @property
    def net_s(self) -> float:
        return self.gained_s - self.lost_s

    @property
    def says_something(self) -> bool:
        """Whether the difference is more than what the replays are off."""
        return abs(self.net_s) > self.error_s

    def add(self, other: Others | OtherDay) -> None:
        take_in(self, other)


@dataclass(slots=True)
class ToldOthers:
    """Whole days (UTC) that a time touches. `as_of_s`: when the last of them was replayed; None: none was.

    `unranked`: days that were replayed in the order of arrival. `limits`: why limits were not played, of the last day
    that is so; "": they were."""

    rows: list[Others] = field(default_factory=list)
    total: Others = field(default_factory=lambda: Others("all"))
    days: int = 0
    as_of_s: float | None = None
    away_s: float = 0.0
    unknown: int = 0
    left_out: int = 0
    unranked: int = 0
    limits: str = ""


def others(session: Session, user: str | None, since_s: float, until_s: float, by: tuple[By, ...]) -> ToldOthers:
    """Of one user's other jobs or all, in the order of their keys."""
    told, found = ToldOthers(), dict[str, Others]()
    query = select(OtherDay).where(OtherDay.day_s > since_s - DAY_S, OtherDay.day_s < until_s)
    for row in session.scalars(query if user is None else query.where(OtherDay.user == user)):
        key = " ".join(_KEYS[what](row) for what in by)
        found.setdefault(key, Others(key)).add(row)
        told.total.add(row)
    told.rows = [found[key] for key in sorted(found)]
    replays = select(OtherReplay).where(OtherReplay.day_s > since_s - DAY_S, OtherReplay.day_s < until_s)
    for one in session.scalars(replays.order_by(OtherReplay.day_s)):
        told.days += 1
        told.as_of_s = max(told.as_of_s or 0.0, one.as_of_s)
        told.away_s += one.away_s
        told.unknown += one.unknown
        told.left_out += one.left_out
        told.unranked += not one.ranked
        told.limits = one.limits or told.limits
    return told


_KEYS: dict[By, Callable[[OtherDay], str]] = {
    By.DAY: lambda row: datetime.fromtimestamp(row.day_s, UTC).strftime("%Y-%m-%d"),
    By.USER: lambda row: row.user,
    By.QUEUE: lambda row: row.queue,
}
