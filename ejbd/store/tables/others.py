"""Batch jobs that are not EJB's, and what these gained and lost by elastic ones."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from ejbd.store.tables.base import Base, Serial


class OtherJob(Base):
    """A batch job that is not EJB's, as polls saw it. Written where something changed; ejbd/manager/poll/others.py.

    `ready_s`: since when it waits for nothing but room. `eligible_s`: since when for nothing but room and limits, and
    `limited_by` the kind of the last limit that it stood on (`core.view.Counted` by name, or OTHER; None: on none).
    `open`: it was not seen to end. `end_s` is the actual end; of a job that is not open and has none it is not known.
    """

    __tablename__ = "other_jobs"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=False)
    batch_id: Mapped[str] = mapped_column(String(64))
    user: Mapped[str] = mapped_column(String(256))
    queue: Mapped[str] = mapped_column(String(256))
    processors: Mapped[int] = mapped_column(Integer)
    walltime_s: Mapped[float | None]
    submit_s: Mapped[float | None]
    ready_s: Mapped[float | None]
    eligible_s: Mapped[float | None]
    limited_by: Mapped[str | None] = mapped_column(String(32))
    account: Mapped[str | None] = mapped_column(String(256))
    qos: Mapped[str | None] = mapped_column(String(256))
    start_s: Mapped[float | None]
    end_s: Mapped[float | None]
    open: Mapped[bool] = mapped_column(Boolean)
    changed_s: Mapped[float]

    __table_args__ = (Index("ix_other_jobs_open", "open", "changed_s"), Index("ix_other_jobs_start", "start_s"))


class OtherPriority(Base):
    """With which priority a batch job waited last (0: not told), EJB's own too; what these were charged to. Written
    once, when it is seen to wait no more."""

    __tablename__ = "other_priorities"

    batch_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    priority: Mapped[int] = mapped_column(BigInteger)
    account: Mapped[str | None] = mapped_column(String(256))
    qos: Mapped[str | None] = mapped_column(String(256))
    started_s: Mapped[float]

    __table_args__ = (Index("ix_other_priorities_started", "started_s"),)


class OtherGap(Base):
    """A time in which no poll looked for so long that a job may have come and gone unseen."""

    __tablename__ = "other_gaps"

    until_s: Mapped[float] = mapped_column(primary_key=True)
    from_s: Mapped[float]


class OtherKept(Base):
    """A time that the site kept its nodes free for, as polls saw it: maintenance."""

    __tablename__ = "other_kept"

    name: Mapped[str] = mapped_column(String(256), primary_key=True)
    start_s: Mapped[float] = mapped_column(primary_key=True)
    end_s: Mapped[float]  # as it was seen last; where it was given up before, then
    nodes: Mapped[list[str]] = mapped_column(JSON)
    processors: Mapped[int | None] = mapped_column(Integer)  # of each node; None: all


class OtherReplay(Base):
    """A day (UTC) that was replayed for what other jobs gained and lost; ejbd/manager/service/hindsight.py."""

    __tablename__ = "other_replays"

    day_s: Mapped[float] = mapped_column(primary_key=True)
    as_of_s: Mapped[float]  # what was known then
    away_s: Mapped[float]  # of the day, without a poll
    unknown: Mapped[int] = mapped_column(Integer)  # jobs that ended without being seen to: taken to their walltime
    left_out: Mapped[int] = mapped_column(Integer)  # jobs that a replay cannot place, or of no known start
    ranked: Mapped[bool] = mapped_column(Boolean)  # in the order of priorities
    limits: Mapped[str] = mapped_column(String(512))  # why limits were not played; "": they were, or there are none


class OtherDay(Base):
    """What a user's other jobs of a queue, which started on a day (UTC), gained and lost by elastic ones."""

    __tablename__ = "other_days"

    day_s: Mapped[float] = mapped_column(primary_key=True)
    user: Mapped[str] = mapped_column(String(256), primary_key=True)
    queue: Mapped[str] = mapped_column(String(256), primary_key=True)
    jobs: Mapped[int] = mapped_column(Integer)
    gained: Mapped[int] = mapped_column(Integer)
    gained_s: Mapped[float]
    lost: Mapped[int] = mapped_column(Integer)
    lost_s: Mapped[float]
    unsure: Mapped[int] = mapped_column(Integer)  # jobs that waited for a limit that the replay does not know
    error_s: Mapped[float]
    before_real_s: Mapped[float]
