"""What other jobs were charged to, and the limits and kept times that they waited for, for hindsight."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("other_jobs", recreate=_anew()) as jobs:
        jobs.add_column(sa.Column("eligible_s", sa.Float(), nullable=True))
        jobs.add_column(sa.Column("limited_by", sa.String(length=32), nullable=True))
        jobs.add_column(sa.Column("account", sa.String(length=256), nullable=True))
        jobs.add_column(sa.Column("qos", sa.String(length=256), nullable=True))
    with op.batch_alter_table("other_priorities", recreate=_anew()) as priorities:
        priorities.add_column(sa.Column("account", sa.String(length=256), nullable=True))
        priorities.add_column(sa.Column("qos", sa.String(length=256), nullable=True))
    with op.batch_alter_table("other_days", recreate=_anew()) as days:
        days.add_column(sa.Column("unsure", sa.Integer(), nullable=False, server_default="0"))
    with op.batch_alter_table("other_days", recreate=_anew()) as days:
        days.alter_column("unsure", server_default=None)
    before = "it was replayed before limits were known"
    with op.batch_alter_table("other_replays", recreate=_anew()) as replays:
        replays.add_column(sa.Column("ranked", sa.Boolean(), nullable=False, server_default=sa.false()))
        replays.add_column(sa.Column("limits", sa.String(length=512), nullable=False, server_default=before))
    with op.batch_alter_table("other_replays", recreate=_anew()) as replays:
        replays.alter_column("ranked", server_default=None)
        replays.alter_column("limits", server_default=None)
    op.create_table(
        "other_kept",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("start_s", sa.Float(), nullable=False),
        sa.Column("end_s", sa.Float(), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("name", "start_s", name=op.f("pk_other_kept")),
    )


def downgrade() -> None:
    op.drop_table("other_kept")
    for table, columns in (
        ("other_replays", ("limits", "ranked")),
        ("other_days", ("unsure",)),
        ("other_priorities", ("qos", "account")),
        ("other_jobs", ("qos", "account", "limited_by", "eligible_s")),
    ):
        with op.batch_alter_table(table) as changed:
            for column in columns:
                changed.drop_column(column)


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
