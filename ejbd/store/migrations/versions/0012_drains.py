"""Subjobs that have to be left by a time: the batch system has warned, or an operator drains their nodes."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("subjobs", recreate=_anew()) as subjobs:
        subjobs.add_column(sa.Column("leave_by_s", sa.Float(), nullable=True))
        subjobs.add_column(sa.Column("warned_s", sa.Float(), nullable=True))
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
    with op.batch_alter_table("subjobs") as subjobs:
        subjobs.drop_column("warned_s")
        subjobs.drop_column("leave_by_s")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
