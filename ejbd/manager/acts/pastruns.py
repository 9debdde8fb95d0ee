"""Keeps runs of the past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from ejbd.store.models import PastRun
from ejbd.wire.toldruns import ToldRun

if TYPE_CHECKING:
    pass


def forget_cut_short(session: Session, told: ToldRun) -> None:
    """What an earlier attempt told of the same run, where this one tells more: it would count twice."""
    session.execute(delete(PastRun).where(PastRun.key == told.key, PastRun.outcome == "timeout"))


def take_in(session: Session, runs: Sequence[ToldRun]) -> int:
    """Keep those that are new; how many there were."""
    if not runs:
        return 0
    before = session.scalar(select(func.coalesce(func.max(PastRun.id), 0))) or 0
    connection = session.connection()
    # The driver's own words: a million rows are taken in at a time, and SQLAlchemy's would cost three times as much.
    sign = "?" if connection.dialect.name == "sqlite" else "%s"
    columns = ", ".join('"user"' if name == "user" else name for name in ToldRun._fields)
    values = ", ".join([sign] * len(ToldRun._fields))
    statement = f"INSERT INTO past_runs ({columns}) VALUES ({values}) ON CONFLICT (key) DO NOTHING"
    connection.exec_driver_sql(statement, list(runs))
    return session.scalar(select(func.count()).select_from(PastRun).where(PastRun.id > before)) or 0
