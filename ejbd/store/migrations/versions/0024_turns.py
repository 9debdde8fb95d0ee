"""Which J0s are kept from beginning until their turn."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("subjobs", recreate=_anew()) as subjobs:
        subjobs.add_column(sa.Column("stays", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("subjobs", recreate=_anew()) as subjobs:
        subjobs.alter_column("stays", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("subjobs") as subjobs:
        subjobs.drop_column("stays")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
