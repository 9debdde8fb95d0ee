"""What moves cost, by application; the memory of a worker's ranks."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# SQLite counts up an INTEGER PRIMARY KEY only.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTED = {"sqlite_autoincrement": True}


def upgrade() -> None:
    op.create_table(
        "moves",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("application", sa.String(length=512), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_s", sa.Float(), nullable=False),
        sa.Column("write_s", sa.Float(), nullable=False),
        sa.Column("wait_s", sa.Float(), nullable=False),
        sa.Column("restart_s", sa.Float(), nullable=True),
        sa.Column("to_processors", sa.Integer(), nullable=True),
        sa.Column("to_nodes", sa.Integer(), nullable=True),
        sa.Column("by_node", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_moves")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_moves_application", "moves", ["application", "id"])
    op.create_index("ix_moves_job", "moves", ["job_id", "epoch"])
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("workers", recreate=_anew()) as workers:
        workers.add_column(sa.Column("resident_bytes", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("application", sa.String(length=512), nullable=True))
    op.execute("UPDATE jobs SET application = ''")  # jobs of before have no name to keep measurements under
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.alter_column("application", existing_type=sa.String(length=512), nullable=False)


def downgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("application")
    with op.batch_alter_table("workers") as workers:
        workers.drop_column("resident_bytes")
    op.drop_table("moves")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
