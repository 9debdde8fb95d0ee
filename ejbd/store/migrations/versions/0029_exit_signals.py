"""The signal that ended a job's script."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}


def upgrade() -> None:
    with op.batch_alter_table("jobs", recreate=_anew(), table_kwargs=COUNTED) as jobs:
        jobs.add_column(sa.Column("exit_signal", sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("exit_signal")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
