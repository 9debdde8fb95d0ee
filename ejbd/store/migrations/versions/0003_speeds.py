"""How fast placements got on, by application; what a placement's ranks reported of their progress."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# SQLite counts up an INTEGER PRIMARY KEY only.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "speeds",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("application", sa.String(length=512), nullable=False),
        sa.Column("work", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("launch", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("degree", sa.Integer(), nullable=False),
        sa.Column("units", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("total", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_speeds")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_speeds_application", "speeds", ["application", "degree", "id"])
    op.create_index("ix_speeds_job", "speeds", ["job_id", "epoch"])
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("epochs", recreate=_anew()) as epochs:
        epochs.add_column(sa.Column("progress", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("epochs") as epochs:
        epochs.drop_column("progress")
    op.drop_table("speeds")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
