"""Launches with ranks that go on when one has failed, as those of srun do."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("launches", recreate=_anew()) as launches:
        launches.add_column(sa.Column("together", sa.Boolean(), nullable=False, server_default=sa.true()))
    with op.batch_alter_table("launches", recreate=_anew()) as launches:
        launches.alter_column("together", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("launches") as launches:
        launches.drop_column("together")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
