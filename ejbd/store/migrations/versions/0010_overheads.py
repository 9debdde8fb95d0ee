"""What starts and ends of subjobs took, by queue and application; whether EJB ran a whole run."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# SQLite counts up an INTEGER PRIMARY KEY only.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "overheads",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("hop", sa.String(length=16), nullable=False),
        sa.Column("queue", sa.String(length=256), nullable=False),
        sa.Column("application", sa.String(length=512), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("subjob_id", sa.String(length=24), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_overheads")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_overheads_queue", "overheads", ["queue", "hop", "id"])
    op.create_index("ix_overheads_application", "overheads", ["application", "hop", "id"])
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    keeps = {"sqlite_autoincrement": True}
    with op.batch_alter_table("runs", recreate=_anew(), table_kwargs=keeps) as runs:
        runs.add_column(sa.Column("elastic", sa.Boolean(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("elastic")
    op.drop_table("overheads")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
