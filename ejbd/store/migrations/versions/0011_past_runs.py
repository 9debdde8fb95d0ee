"""Runs of the past, ours and imported ones, that walltimes are learned from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# SQLite counts up an INTEGER PRIMARY KEY only.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "past_runs",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("key", sa.BigInteger(), nullable=False),
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("application", sa.String(length=512), nullable=False),
        sa.Column("input_class", sa.String(length=128), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("run_s", sa.Float(), nullable=False),
        sa.Column("requested_s", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("end_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_past_runs")),
        sa.UniqueConstraint("key", name=op.f("uq_past_runs_key")),
        sqlite_autoincrement=True,
    )
    columns = ["user", "application", "processors", "input_class", "end_s"]
    op.create_index("ix_past_runs_application", "past_runs", columns)


def downgrade() -> None:
    op.drop_table("past_runs")
