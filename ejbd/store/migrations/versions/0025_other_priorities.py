"""With which priority batch jobs waited last, for hindsight: it was kept in memory alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "other_priorities",
        sa.Column("batch_id", sa.String(length=64), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("started_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_other_priorities")),
    )
    op.create_index("ix_other_priorities_started", "other_priorities", ["started_s"])


def downgrade() -> None:
    op.drop_table("other_priorities")
