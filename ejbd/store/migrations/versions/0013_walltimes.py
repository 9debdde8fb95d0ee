"""Walltimes that were learned for a job."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}


def upgrade() -> None:
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("jobs", recreate=_anew(), table_kwargs=COUNTED) as jobs:
        jobs.add_column(sa.Column("walltimes", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("walltimes")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
