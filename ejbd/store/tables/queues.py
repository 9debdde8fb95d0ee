"""Queues and nodes: what operators have set, and what EJB leaves alone for a while."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ejbd.store.tables.base import NEVER_AGAIN, Base, Serial


class QueueOverride(Base):
    """Settings of a queue that were changed at run time (`ejb queue set`); the TOML file gives the rest."""

    __tablename__ = "queue_overrides"

    name: Mapped[str] = mapped_column(String(256), primary_key=True)
    settings: Mapped[dict[str, Any]]
    changed_s: Mapped[float]
    changed_by: Mapped[str] = mapped_column(String(256))


class QueueWindow(Base):
    """Settings of a queue that hold in a window of the week, on top of the others; ejbd/core/calendar.py.

    Where windows meet, the one that was made last is on top.
    """

    __tablename__ = "queue_windows"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    queue: Mapped[str] = mapped_column(String(256))
    when: Mapped[str] = mapped_column(String(64))  # as ejbd.core.calendar writes it
    settings: Mapped[dict[str, Any]]
    in_force: Mapped[bool] = mapped_column(Boolean)  # as of the last poll, or of the last change of the calendar
    changed_s: Mapped[float]
    changed_by: Mapped[str] = mapped_column(String(256))

    __table_args__ = (UniqueConstraint("queue", "when"), {"sqlite_autoincrement": True})


class QueuePause(Base):
    """A queue where submissions or starts (`what`) fail; ejbd/manager/rules/queues/queuepause.py.

    No row: nothing has failed
    since the last that did not.
    """

    __tablename__ = "queue_pauses"

    name: Mapped[str] = mapped_column(String(256), primary_key=True)  # as in jobs.queue
    what: Mapped[str] = mapped_column(String(16), primary_key=True)  # submissions | starts
    whose: Mapped[str] = mapped_column(String(1024), primary_key=True, default="")  # user/account/QOS; "": all
    failures: Mapped[int] = mapped_column(Integer)  # in a row
    jobs: Mapped[list[Any]]  # the first different ones that failed
    trial: Mapped[str | None] = mapped_column(String(16))  # the job by which it is being tried
    reason: Mapped[str] = mapped_column(Text)  # of the last failure
    since_s: Mapped[float]  # the first failure
    until_s: Mapped[float | None]  # paused; NULL: not yet


class Drain(Base):
    """Nodes that an operator has asked EJB to leave by a time, until that is taken back."""

    __tablename__ = "drains"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    nodes: Mapped[list[Any]]
    by_s: Mapped[float]
    asked_s: Mapped[float]
    asked_by: Mapped[str] = mapped_column(String(256))
    free_s: Mapped[float | None]  # when no elastic job was left there for the first time

    __table_args__ = (NEVER_AGAIN,)
