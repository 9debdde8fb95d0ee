"""Queues that are paused since their submissions or starts keep failing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "queue_pauses",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("what", sa.String(length=16), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("jobs", sa.JSON(), nullable=False),
        sa.Column("trial", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since_s", sa.Float(), nullable=False),
        sa.Column("until_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name", "what", name=op.f("pk_queue_pauses")),
    )


def downgrade() -> None:
    op.drop_table("queue_pauses")
