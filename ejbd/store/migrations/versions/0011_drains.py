"""Subjobs that have to be left by a time: the batch system has warned, or an operator drains their nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("subjobs", sa.Column("leave_by_s", sa.Float(), nullable=True))
    op.add_column("subjobs", sa.Column("warned", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "drains",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("by_s", sa.Float(), nullable=False),
        sa.Column("asked_s", sa.Float(), nullable=False),
        sa.Column("asked_by", sa.String(length=256), nullable=False),
        sa.Column("free_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_drains")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("drains")
    op.drop_column("subjobs", "warned")
    op.drop_column("subjobs", "leave_by_s")
