"""Lists, polls and starts of the daemon are answered by an index, however many jobs have ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

LISTED, ELEMENTS = sa.text("array_id IS NULL"), sa.text("array_id IS NOT NULL")
RUN = ["user", "application", "input_class", "end_s"]


def upgrade() -> None:
    for index, table in (("state", "jobs"), ("user_submit", "jobs"), ("array", "jobs"), ("state", "subjobs")):
        op.drop_index(f"ix_{table}_{index}", table)
    op.create_index("ix_jobs_state", "jobs", ["state", "end_s", "array_id"])
    op.create_index("ix_subjobs_state", "subjobs", ["state", "end_s"])
    of_jobs = (("listed", ["seq", "state", "array_id"]), ("user_listed", ["user", "seq", "state", "array_id"]))
    for index, columns in of_jobs:
        op.create_index(f"ix_jobs_{index}", "jobs", columns, sqlite_where=LISTED, postgresql_where=LISTED)
    op.create_index("ix_jobs_array", "jobs", ["array_id", "state"], sqlite_where=ELEMENTS, postgresql_where=ELEMENTS)
    op.create_index("ix_past_runs_newest", "past_runs", RUN)
    op.create_index("ix_workers_alive", "workers", ["alive"])


def downgrade() -> None:
    op.drop_index("ix_workers_alive", "workers")
    op.drop_index("ix_past_runs_newest", "past_runs")
    for index in ("state", "listed", "user_listed", "array"):
        op.drop_index(f"ix_jobs_{index}", "jobs")
    op.drop_index("ix_subjobs_state", "subjobs")
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_index("ix_jobs_user_submit", "jobs", ["user", "submit_s"])
    op.create_index("ix_jobs_array", "jobs", ["array_id", "state"])
    op.create_index("ix_subjobs_state", "subjobs", ["state"])
