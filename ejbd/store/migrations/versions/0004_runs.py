"""Whole runs, to be set beside others of the same command."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# SQLite counts up an INTEGER PRIMARY KEY only.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("application", sa.String(length=512), nullable=False),
        sa.Column("work", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("full_s", sa.Float(), nullable=False),
        sa.Column("over", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_application", "runs", ["application", "id"])
    op.create_index("ix_runs_work", "runs", ["work", "id"])


def downgrade() -> None:
    op.drop_table("runs")
