"""What past runs have taught, kept by application and queue, beyond the jobs' rows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ejbd.store.tables.base import NEVER_AGAIN, Base, Serial


class Speed(Base):
    """How fast a placement got on, by the progress its ranks reported. Kept by application, beyond the job's row."""

    __tablename__ = "speeds"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    application: Mapped[str] = mapped_column(String(512))
    work: Mapped[str] = mapped_column(String(64))  # the same for jobs of the same command
    job_id: Mapped[str] = mapped_column(String(16))
    launch: Mapped[int] = mapped_column(Integer)
    epoch: Mapped[int] = mapped_column(Integer)
    at_s: Mapped[float]
    processors: Mapped[int] = mapped_column(Integer)
    degree: Mapped[int] = mapped_column(Integer)  # of over-subscription; 1: full width
    units: Mapped[float]  # the application's own
    seconds: Mapped[float]  # by the clock of the file in which it tells
    total: Mapped[float | None]  # units, where it told that

    __table_args__ = (
        Index("ix_speeds_application", "application", "degree", "id"),
        Index("ix_speeds_job", "job_id", "epoch"),
        NEVER_AGAIN,
    )


class Run(Base):
    """A whole run that ended well. Kept by application, beyond its job's row, for others of its command."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    application: Mapped[str] = mapped_column(String(512))
    work: Mapped[str] = mapped_column(String(64))  # the same for jobs of the same command
    job_id: Mapped[str] = mapped_column(String(16))
    at_s: Mapped[float]
    full_s: Mapped[float]  # that it computed at full width
    over: Mapped[dict[str, Any]]  # degree of over-subscription -> seconds
    elastic: Mapped[bool | None] = mapped_column(Boolean)  # EJB ran it; false: it was passed through; NULL: not known

    __table_args__ = (
        Index("ix_runs_application", "application", "id"),
        Index("ix_runs_work", "work", "id"),
        NEVER_AGAIN,
    )


class Overhead(Base):
    """What the start or the end of a subjob took beside its moves. Kept by queue and application, beyond its job's
    row."""

    __tablename__ = "overheads"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    hop: Mapped[str] = mapped_column(String(16))  # ready | launch | back (ejbd.core.overhead)
    queue: Mapped[str] = mapped_column(String(256))
    application: Mapped[str] = mapped_column(String(512))
    job_id: Mapped[str] = mapped_column(String(16))
    subjob_id: Mapped[str] = mapped_column(String(24))
    at_s: Mapped[float]
    processors: Mapped[int] = mapped_column(Integer)
    seconds: Mapped[float]

    __table_args__ = (
        Index("ix_overheads_queue", "queue", "hop", "id"),
        Index("ix_overheads_application", "application", "hop", "id"),
        NEVER_AGAIN,
    )


class PastRun(Base):
    """How long an application ran once, for any user: what walltimes are learned from."""

    __tablename__ = "past_runs"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    key: Mapped[int] = mapped_column(BigInteger, unique=True)  # the same for the same run, however often it is told
    user: Mapped[str] = mapped_column(String(256))
    application: Mapped[str] = mapped_column(String(512))
    input_class: Mapped[str] = mapped_column(String(128))  # "": none was said
    processors: Mapped[int] = mapped_column(Integer)
    run_s: Mapped[float]
    requested_s: Mapped[float | None]
    outcome: Mapped[str] = mapped_column(String(16))  # completed | timeout | failed | cancelled
    end_s: Mapped[float]

    __table_args__ = (
        Index("ix_past_runs_application", "user", "application", "processors", "input_class", "end_s"),
        Index("ix_past_runs_newest", "user", "application", "input_class", "end_s"),
        NEVER_AGAIN,
    )


class Obstacle(Base):
    """What keeps an application from being moved. Kept by application, for its next jobs, beyond its job's row."""

    __tablename__ = "obstacles"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    application: Mapped[str] = mapped_column(String(512))
    job_id: Mapped[str] = mapped_column(String(16))
    at_s: Mapped[float]
    how: Mapped[str] = mapped_column(String(16))  # failed; seen: by an earlier EJB
    why: Mapped[str] = mapped_column(Text)

    __table_args__ = (Index("ix_obstacles_application", "application", "id"), NEVER_AGAIN)
