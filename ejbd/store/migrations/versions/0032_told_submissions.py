"""When a batch job was submitted, by the batch system's own clock: what it is known by where its tag is taken off."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("subjobs", recreate=_anew()) as subjobs:
        subjobs.add_column(sa.Column("told_submit_s", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("subjobs") as subjobs:
        subjobs.drop_column("told_submit_s")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
