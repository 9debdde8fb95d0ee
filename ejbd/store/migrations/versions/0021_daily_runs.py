"""When what is done once a day was done last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "daily_runs",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("due_s", sa.Float(), nullable=False),
        sa.Column("ended_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_daily_runs")),
    )


def downgrade() -> None:
    op.drop_table("daily_runs")
