"""Lists of a queue, of one user's jobs in it, and of a name are answered by an index, however many jobs have ended.

So is how many jobs of a user wait, however many of others do.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

LISTED = sa.text("array_id IS NULL")
STATE = ["state", "end_s", "array_id"]
FOUND_BY = {"queue_listed": ["queue"], "user_queue": ["user", "queue"], "named": ["name"]}


def upgrade() -> None:
    for index, columns in FOUND_BY.items():
        listed = [*columns, "seq", "state", "array_id"]
        op.create_index(f"ix_jobs_{index}", "jobs", listed, sqlite_where=LISTED, postgresql_where=LISTED)
    op.drop_index("ix_jobs_state", "jobs")
    op.create_index("ix_jobs_state", "jobs", [*STATE, "user"])


def downgrade() -> None:
    op.drop_index("ix_jobs_state", "jobs")
    op.create_index("ix_jobs_state", "jobs", STATE)
    for index in FOUND_BY:
        op.drop_index(f"ix_jobs_{index}", "jobs")
