"""The number that a job goes by, in its own row."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

from ejbd.wire.numbers import batch_number

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}  # what SQLite's reflection does not tell
FIRST = sa.text(
    "SELECT job_id, batch_id FROM subjobs WHERE role IN ('placeholder', 'rigid') AND batch_id IS NOT NULL"
    " ORDER BY job_id, ordinal DESC"
)
OF_ARRAYS = sa.text("SELECT job_id, number FROM arrays WHERE number IS NOT NULL")
SET = sa.text("UPDATE jobs SET number = :number WHERE id = :job")


def upgrade() -> None:
    connection = op.get_bind()
    first = {row.job_id: batch_number(row.batch_id) for row in connection.execute(FIRST)}  # the lowest ordinal is last
    numbers = {**first, **{row.job_id: row.number for row in connection.execute(OF_ARRAYS)}}
    with op.batch_alter_table("jobs", table_kwargs=COUNTED, recreate=_anew()) as jobs:
        jobs.add_column(sa.Column("number", sa.String(length=64), nullable=True))
    if rows := [{"job": job, "number": number} for job, number in numbers.items() if number is not None]:
        connection.execute(SET, rows)
    op.create_index("ix_jobs_number", "jobs", ["number"])
    op.create_index("ix_subjobs_batch", "subjobs", ["batch_id"])
    with op.batch_alter_table("arrays", recreate=_anew()) as arrays:
        arrays.drop_column("number")


def downgrade() -> None:
    with op.batch_alter_table("arrays") as arrays:
        arrays.add_column(sa.Column("number", sa.String(length=64), nullable=True))
    op.drop_index("ix_subjobs_batch", "subjobs")
    op.drop_index("ix_jobs_number", "jobs")
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("number")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
