"""Batch jobs that are not EJB's, as polls saw them, and what they gained and lost by elastic jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "other_jobs",
        sa.Column("seq", serial, autoincrement=False, nullable=False),
        sa.Column("batch_id", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("queue", sa.String(length=256), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("walltime_s", sa.Float(), nullable=True),
        sa.Column("submit_s", sa.Float(), nullable=True),
        sa.Column("ready_s", sa.Float(), nullable=True),
        sa.Column("start_s", sa.Float(), nullable=True),
        sa.Column("end_s", sa.Float(), nullable=True),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("changed_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_other_jobs")),
    )
    op.create_index("ix_other_jobs_open", "other_jobs", ["open", "changed_s"])
    op.create_index("ix_other_jobs_start", "other_jobs", ["start_s"])
    op.create_table(
        "other_gaps",
        sa.Column("until_s", sa.Float(), nullable=False),
        sa.Column("from_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("until_s", name=op.f("pk_other_gaps")),
    )
    op.create_table(
        "other_replays",
        sa.Column("day_s", sa.Float(), nullable=False),
        sa.Column("as_of_s", sa.Float(), nullable=False),
        sa.Column("away_s", sa.Float(), nullable=False),
        sa.Column("unknown", sa.Integer(), nullable=False),
        sa.Column("left_out", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("day_s", name=op.f("pk_other_replays")),
    )
    op.create_table(
        "other_days",
        sa.Column("day_s", sa.Float(), nullable=False),
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("queue", sa.String(length=256), nullable=False),
        sa.Column("jobs", sa.Integer(), nullable=False),
        sa.Column("gained", sa.Integer(), nullable=False),
        sa.Column("gained_s", sa.Float(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("lost_s", sa.Float(), nullable=False),
        sa.Column("error_s", sa.Float(), nullable=False),
        sa.Column("before_real_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("day_s", "user", "queue", name=op.f("pk_other_days")),
    )


def downgrade() -> None:
    op.drop_table("other_days")
    op.drop_table("other_replays")
    op.drop_table("other_gaps")
    op.drop_index("ix_other_jobs_start", table_name="other_jobs")
    op.drop_index("ix_other_jobs_open", table_name="other_jobs")
    op.drop_table("other_jobs")
