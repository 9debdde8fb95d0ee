"""Secrets that are proved rather than shown, and tokens that end and have a scope."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_DAYS_LEFT = 30  # of a token that was made without an end


def upgrade() -> None:
    with op.batch_alter_table("subjobs") as subjobs:
        subjobs.alter_column("token_hash", new_column_name="worker_secret", existing_type=sa.String(length=64))
    op.execute("UPDATE subjobs SET worker_secret = ''")  # what was there proves nothing
    # Those that are there keep what they could do.
    scope = sa.Column("scope", sa.String(length=16), nullable=False, server_default="admin")
    with op.batch_alter_table("tokens", recreate="always") as table:
        table.add_column(scope)
    tokens = sa.table("tokens", sa.column("expires_s", sa.Float()))
    end = time.time() + _DAYS_LEFT * 86400.0
    op.execute(tokens.update().where(tokens.c.expires_s.is_(None)).values(expires_s=end))


def downgrade() -> None:
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_column("scope")
    with op.batch_alter_table("subjobs") as subjobs:
        subjobs.alter_column("worker_secret", new_column_name="token_hash", existing_type=sa.String(length=64))
