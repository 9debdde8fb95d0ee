"""What a database says about itself; how long a worker has been silent while a daemon listened."""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "marks",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_marks")),
    )
    # Batch mode makes a table anew in SQLite: its text stays that of the models.
    with op.batch_alter_table("workers", recreate=_anew()) as workers:
        workers.add_column(sa.Column("silent_s", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("workers") as workers:
        workers.drop_column("silent_s")
    op.drop_table("marks")


def _anew() -> Literal["always", "auto"]:
    return "always" if op.get_context().dialect.name == "sqlite" else "auto"
