"""To which account a job is charged, and pauses of a queue that are one user's in one account."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}  # what SQLite's reflection does not tell


def upgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED, recreate=_anew()) as jobs:
        jobs.add_column(sa.Column("account", sa.String(length=256), nullable=False, server_default=""))
    with op.batch_alter_table("jobs", table_kwargs=COUNTED, recreate=_anew()) as jobs:
        jobs.alter_column("account", server_default=None)
    # What was paused is found out again by three submissions.
    op.drop_table("queue_pauses")
    _make(sa.Column("whose", sa.String(length=640), nullable=False))


def downgrade() -> None:
    op.drop_table("queue_pauses")
    _make()
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("account")


def _make(*more: sa.Column[str]) -> None:
    keys = ["name", "what", *(column.name for column in more)]
    op.create_table(
        "queue_pauses",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("what", sa.String(length=16), nullable=False),
        *more,
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("jobs", sa.JSON(), nullable=False),
        sa.Column("trial", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since_s", sa.Float(), nullable=False),
        sa.Column("until_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint(*keys, name=op.f("pk_queue_pauses")),
    )


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
