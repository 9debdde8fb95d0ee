"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite counts up an INTEGER PRIMARY KEY only.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=True),
        sa.Column("subjob_id", sa.String(length=24), nullable=True),
        sa.Column("kind", sa.String(length=48), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_job", "events", ["job_id", "id"])
    op.create_table(
        "idempotency_keys",
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("key", sa.String(length=256), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("user", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_job", "idempotency_keys", ["job_id"])
    op.create_table(
        "intents",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("subjob_id", sa.String(length=24), nullable=True),
        sa.Column("batch_id", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("absences", sa.Integer(), nullable=False),
        sa.Column("not_before_s", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("done_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_intents")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_intents_job", "intents", ["job_id"])
    op.create_index("ix_intents_state", "intents", ["state"])
    op.create_index("ix_intents_subjob", "intents", ["subjob_id"])
    op.create_table(
        "jobs",
        sa.Column("seq", SERIAL, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("queue", sa.String(length=256), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("elastic", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("engine", sa.String(length=32), nullable=False),
        sa.Column("processes", sa.Integer(), nullable=False),
        sa.Column("walltime_s", sa.Float(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("submit_s", sa.Float(), nullable=False),
        sa.Column("start_s", sa.Float(), nullable=True),
        sa.Column("end_s", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("final_state", sa.String(length=16), nullable=True),
        sa.Column("work_s", sa.Float(), nullable=False),
        sa.Column("work_rate", sa.Float(), nullable=False),
        sa.Column("work_as_of_s", sa.Float(), nullable=True),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("lead_worker", sa.String(length=32), nullable=True),
        sa.Column("script_run", sa.Integer(), nullable=False),
        sa.Column("setbacks", sa.Integer(), nullable=False),
        sa.Column("overruns", sa.Integer(), nullable=False),
        sa.Column("not_before_s", sa.Float(), nullable=False),
        sa.Column("move_not_before_s", sa.Float(), nullable=False),
        sa.Column("failed_starts", sa.Integer(), nullable=False),
        sa.Column("rigid_start_s", sa.Float(), nullable=True),
        sa.Column("decision_key", sa.Text(), nullable=False),
        sa.Column("expected_completion_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_jobs")),
        sa.UniqueConstraint("id", name=op.f("uq_jobs_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_index("ix_jobs_user_submit", "jobs", ["user", "submit_s"])
    op.create_table(
        "queue_overrides",
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("changed_s", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_queue_overrides")),
    )
    op.create_table(
        "tokens",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("expires_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_tokens")),
    )
    op.create_table(
        "epochs",
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("launch_ordinal", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("placement", sa.JSON(), nullable=False),
        sa.Column("restart_from", sa.Integer(), nullable=True),
        sa.Column("fallback", sa.JSON(), nullable=False),
        sa.Column("exits", sa.JSON(), nullable=False),
        sa.Column("checkpoint_bytes", sa.BigInteger(), nullable=True),
        sa.Column("work_at_start_s", sa.Float(), nullable=False),
        sa.Column("work_at_stop_s", sa.Float(), nullable=True),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("running_s", sa.Float(), nullable=True),
        sa.Column("stopping_s", sa.Float(), nullable=True),
        sa.Column("ended_s", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_epochs_job_id")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_epochs")),
    )
    op.create_table(
        "launches",
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("work_at_start_s", sa.Float(), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("ended_s", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_launches_job_id")),
        sa.PrimaryKeyConstraint("job_id", "ordinal", name=op.f("pk_launches")),
    )
    op.create_table(
        "subjobs",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("tag", sa.String(length=64), nullable=False),
        sa.Column("batch_id", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("walltime_s", sa.Float(), nullable=False),
        sa.Column("usable_s", sa.Float(), nullable=False),
        sa.Column("anchor", sa.Boolean(), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("submit_s", sa.Float(), nullable=True),
        sa.Column("start_s", sa.Float(), nullable=True),
        sa.Column("end_s", sa.Float(), nullable=True),
        sa.Column("planned_start_s", sa.Float(), nullable=True),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("missing_since_s", sa.Float(), nullable=True),
        sa.Column("releasing", sa.Boolean(), nullable=False),
        sa.Column("joined", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_subjobs_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subjobs")),
        sa.UniqueConstraint("tag", name=op.f("uq_subjobs_tag")),
    )
    op.create_index("ix_subjobs_job", "subjobs", ["job_id"])
    op.create_index("ix_subjobs_state", "subjobs", ["state"])
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("subjob_id", sa.String(length=24), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("node", sa.String(length=256), nullable=False),
        sa.Column("host", sa.String(length=256), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("boot", sa.String(length=64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("processors", sa.Integer(), nullable=False),
        sa.Column("alive", sa.Boolean(), nullable=False),
        sa.Column("registered_s", sa.Float(), nullable=False),
        sa.Column("last_seen_s", sa.Float(), nullable=False),
        sa.Column("reports_stored", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_workers_job_id")),
        sa.ForeignKeyConstraint(["subjob_id"], ["subjobs.id"], name=op.f("fk_workers_subjob_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("subjob_id", "node", "boot", name=op.f("uq_workers_subjob_id_node_boot")),
    )
    op.create_index("ix_workers_job", "workers", ["job_id"])
    op.create_table(
        "operations",
        sa.Column("seq", SERIAL, autoincrement=True, nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("lease_until_s", sa.Float(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("done_s", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_operations_worker_id")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_operations")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_operations_job", "operations", ["job_id"])
    op.create_index("ix_operations_worker", "operations", ["worker_id", "state"])


def downgrade() -> None:
    op.drop_table("operations")
    op.drop_table("workers")
    op.drop_table("subjobs")
    op.drop_table("launches")
    op.drop_table("epochs")
    op.drop_table("tokens")
    op.drop_table("queue_overrides")
    op.drop_table("jobs")
    op.drop_table("intents")
    op.drop_table("idempotency_keys")
    op.drop_table("events")
