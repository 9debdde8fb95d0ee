"""Settings of queues by windows of the week."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "queue_windows",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("queue", sa.String(length=256), nullable=False),
        sa.Column("when", sa.String(length=64), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("in_force", sa.Boolean(), nullable=False),
        sa.Column("changed_s", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue_windows")),
        sa.UniqueConstraint("queue", "when", name=op.f("uq_queue_windows_queue_when")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("queue_windows")
