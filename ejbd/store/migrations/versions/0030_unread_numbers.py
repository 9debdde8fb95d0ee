"""Whether a job's submitter is about to read its number, before which it does not begin."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}


def upgrade() -> None:
    with op.batch_alter_table("jobs", recreate=_anew(), table_kwargs=COUNTED) as jobs:
        jobs.add_column(sa.Column("unread", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("jobs", recreate=_anew(), table_kwargs=COUNTED) as jobs:
        jobs.alter_column("unread", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("unread")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
