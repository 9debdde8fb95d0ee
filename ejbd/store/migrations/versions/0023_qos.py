"""Which QOS a job asks for, and pauses of a queue that are one user's in one account and one QOS."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}  # what SQLite's reflection does not tell
OPEN = "state NOT IN ('completed', 'failed', 'cancelled', 'timeout')"
AT_ONCE = 500


def upgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED, recreate=_anew()) as jobs:
        jobs.add_column(sa.Column("qos", sa.String(length=256), nullable=False, server_default=""))
    with op.batch_alter_table("jobs", table_kwargs=COUNTED, recreate=_anew()) as jobs:
        jobs.alter_column("qos", server_default=None)
    if not op.get_context().as_sql:
        _fill_in(op.get_bind())
    # What was paused is found out again by three submissions.
    op.execute("DELETE FROM queue_pauses")
    _widen(640, 1024)


def downgrade() -> None:
    op.execute("DELETE FROM queue_pauses")
    _widen(1024, 640)
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("qos")


def _fill_in(connection: sa.Connection) -> None:
    """Of jobs that are open: what their submissions named. Those that have ended wait for nothing."""
    after = 0
    while rows := connection.execute(
        sa.text(f"SELECT seq, spec FROM jobs WHERE seq > :after AND {OPEN} ORDER BY seq LIMIT {AT_ONCE}"),
        {"after": after},
    ).all():
        after = rows[-1].seq
        named = [{"seq": row.seq, "qos": qos} for row in rows if (qos := _qos(row.spec))]
        if named:
            connection.execute(sa.text("UPDATE jobs SET qos = :qos WHERE seq = :seq"), named)


def _qos(stored: Any) -> str:
    spec = json.loads(stored) if isinstance(stored, str) else stored
    asked = spec.get("asked") or {}
    words: Iterable[str] = [*spec.get("options", ()), *spec.get("rigid_options", ()), *asked.get("options", ())]
    named = [word.partition("=")[2] for word in words if word.startswith("--qos=")]
    return named[-1][:256] if named else ""


def _widen(now: int, then: int) -> None:
    with op.batch_alter_table("queue_pauses", recreate=_anew()) as pauses:
        pauses.alter_column(
            "whose", existing_type=sa.String(length=now), type_=sa.String(length=then), existing_nullable=False
        )


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
