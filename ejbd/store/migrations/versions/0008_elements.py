"""What became of the elements of an array, in its subjob's row."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("subjobs", recreate=_anew()) as subjobs:
        subjobs.add_column(sa.Column("elements", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("subjobs") as subjobs:
        subjobs.drop_column("elements")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
