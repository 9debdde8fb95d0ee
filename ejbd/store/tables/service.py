"""What the service keeps for itself: answered submissions, tokens, marks, and what is done once a day."""

from __future__ import annotations

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ejbd.store.tables.base import Base


class IdempotencyKey(Base):
    """A submission that was answered: the same key and body get the same job."""

    __tablename__ = "idempotency_keys"

    user: Mapped[str] = mapped_column(String(256), primary_key=True)
    key: Mapped[str] = mapped_column(String(256), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(String(16))
    created_s: Mapped[float]

    __table_args__ = (Index("ix_idempotency_keys_job", "job_id"),)


class Mark(Base):
    """What the database says about itself: `database`, its name for life; `term`, the number of the daemon that writes
    or wrote last."""

    __tablename__ = "marks"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class DailyRun(Base):
    """Up to which moment something that is done once a day was done; ejbd/manager/service/daytimes.py."""

    __tablename__ = "daily_runs"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    due_s: Mapped[float]  # the moment that was kept, as the calendar has it
    ended_s: Mapped[float | None]  # when it was done; none: counted from here on, and not done yet


class Token(Base):
    """A user's bearer token, kept as a SHA-256 digest."""

    __tablename__ = "tokens"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user: Mapped[str] = mapped_column(String(256))
    label: Mapped[str] = mapped_column(Text, default="")
    created_s: Mapped[float]
    expires_s: Mapped[float | None]
    scope: Mapped[str] = mapped_column(String(16), default="jobs", server_default="admin")  # ejbd/api/auth.py
