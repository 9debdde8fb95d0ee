"""When the workers of a subjob have said that it runs, until a poll shows it."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("subjobs", recreate=_anew()) as subjobs:
        subjobs.add_column(sa.Column("heard_s", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("subjobs") as subjobs:
        subjobs.drop_column("heard_s")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
