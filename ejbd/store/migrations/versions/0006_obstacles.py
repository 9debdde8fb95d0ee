"""What keeps an application, and a job, from being moved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}  # as the models have it: batch mode makes the table anew
# SQLite counts up an INTEGER PRIMARY KEY only.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "obstacles",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("application", sa.String(length=512), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("how", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_obstacles")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_obstacles_application", "obstacles", ["application", "id"])
    op.add_column("jobs", sa.Column("not_movable", sa.Text(), nullable=True))
    op.execute("UPDATE jobs SET not_movable = ''")
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.alter_column("not_movable", existing_type=sa.Text(), nullable=False)


def downgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("not_movable")
    op.drop_table("obstacles")
