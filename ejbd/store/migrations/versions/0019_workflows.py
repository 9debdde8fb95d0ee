"""Workflows: plans of stages, the allocations that they ask for, and every attempt at one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "workflows",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("surroundings", sa.JSON(), nullable=False),
        sa.Column("key", sa.String(length=256), nullable=True),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("cancelled_by", sa.String(length=256), nullable=True),
        sa.Column("submit_s", sa.Float(), nullable=False),
        sa.Column("end_s", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_workflows")),
        sa.UniqueConstraint("id", name=op.f("uq_workflows_id")),
        sa.UniqueConstraint("user", "key", name=op.f("uq_workflows_user_key")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_workflows_state", "workflows", ["state"])
    op.create_table(
        "workflow_stages",
        sa.Column("workflow_id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("lingered", sa.Boolean(), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=True),
        sa.Column("dropping", sa.Boolean(), nullable=False),
        sa.Column("end_s", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["workflow_id"], ["workflows.id"], name=op.f("fk_workflow_stages_workflow_id")),
        sa.PrimaryKeyConstraint("workflow_id", "name", name=op.f("pk_workflow_stages")),
    )
    op.create_table(
        "workflow_runs",
        sa.Column("workflow_id", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("stages", sa.JSON(), nullable=False),
        sa.Column("ahead", sa.Boolean(), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=True),
        sa.Column("submit_s", sa.Float(), nullable=False),
        sa.Column("end_s", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("accounts", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["workflow_id"], ["workflows.id"], name=op.f("fk_workflow_runs_workflow_id")),
        sa.PrimaryKeyConstraint("workflow_id", "stage", "attempt", name=op.f("pk_workflow_runs")),
    )
    op.create_index("ix_workflow_runs_job", "workflow_runs", ["job_id"])


def downgrade() -> None:
    op.drop_index("ix_workflow_runs_job", "workflow_runs")
    op.drop_table("workflow_runs")
    op.drop_table("workflow_stages")
    op.drop_index("ix_workflows_state", "workflows")
    op.drop_table("workflows")
