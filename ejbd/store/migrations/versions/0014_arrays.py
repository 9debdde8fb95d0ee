"""Elastic arrays and their elements, and jobs that wait for other jobs of EJB."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

COUNTED = {"sqlite_autoincrement": True}  # what SQLite's reflection does not tell


def upgrade() -> None:
    with op.batch_alter_table("jobs", table_kwargs=COUNTED, recreate=_anew()) as jobs:
        jobs.add_column(sa.Column("array_id", sa.String(length=16), nullable=True))
        jobs.add_column(sa.Column("array_index", sa.Integer(), nullable=True))
    op.create_index("ix_jobs_array", "jobs", ["array_id", "state"])
    op.create_table(
        "arrays",
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("ahead", sa.Text(), nullable=False),
        sa.Column("dropped", sa.Text(), nullable=False),
        sa.Column("most", sa.Integer(), nullable=True),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.Column("number", sa.String(length=64), nullable=True),
        sa.Column("cancelled_by", sa.String(length=256), nullable=True),
        sa.Column("changed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_arrays_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_arrays")),
    )
    op.create_index("ix_arrays_changed", "arrays", ["changed"])
    op.create_table(
        "dependencies",
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("conditions", sa.Text(), nullable=False),
        sa.Column("never", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_dependencies_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_dependencies")),
    )


def downgrade() -> None:
    op.drop_table("dependencies")
    op.drop_index("ix_arrays_changed", "arrays")
    op.drop_table("arrays")
    op.drop_index("ix_jobs_array", "jobs")
    with op.batch_alter_table("jobs", table_kwargs=COUNTED) as jobs:
        jobs.drop_column("array_index")
        jobs.drop_column("array_id")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
