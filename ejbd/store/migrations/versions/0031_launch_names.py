"""The name of a launch's program."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("launches", recreate=_anew()) as launches:
        launches.add_column(sa.Column("name", sa.Text(), nullable=False, server_default=""))
    with op.batch_alter_table("launches", recreate=_anew()) as launches:
        launches.alter_column("name", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("launches") as launches:
        launches.drop_column("name")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
