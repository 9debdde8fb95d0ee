"""Why a placement was given up, by a code beside the sentence."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("epochs", recreate=_anew()) as epochs:
        epochs.add_column(sa.Column("code", sa.String(32), nullable=False, server_default=""))
    # Until now the sentence decided: whether there was one, and how it ended.
    op.execute("UPDATE epochs SET code = 'before' WHERE reason != ''")
    op.execute("UPDATE epochs SET code = 'right_after_restart' WHERE reason LIKE '%right after the restart'")
    with op.batch_alter_table("epochs", recreate=_anew()) as epochs:
        epochs.alter_column("code", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("epochs") as epochs:
        epochs.drop_column("code")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
