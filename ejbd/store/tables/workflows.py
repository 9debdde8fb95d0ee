"""Workflows, their allocations, and the attempts at these."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ejbd.store.tables.base import NEVER_AGAIN, Base, Serial


class Workflow(Base):
    """A plan of stages (docs/workflows.md), and what its stages are run with."""

    __tablename__ = "workflows"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(16), unique=True)
    name: Mapped[str] = mapped_column(String(64))
    user: Mapped[str] = mapped_column(String(256))
    state: Mapped[str] = mapped_column(String(16))  # WorkflowState
    plan: Mapped[dict[str, Any]]  # ejbd.workflow.plan.Plan
    surroundings: Mapped[dict[str, Any]]  # of its submission: cwd, env, umask, limits
    key: Mapped[str | None] = mapped_column(String(256))  # Idempotency-Key
    request_hash: Mapped[str] = mapped_column(String(64))
    cancelled_by: Mapped[str | None] = mapped_column(String(256))
    submit_s: Mapped[float]
    end_s: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text, default="")

    __table_args__ = (
        UniqueConstraint("user", "key"),
        Index("ix_workflows_state", "state"),
        NEVER_AGAIN,
    )


class WorkflowStage(Base):
    """One allocation of a workflow: a stage, or several that share it; by the name of its first stage."""

    __tablename__ = "workflow_stages"

    workflow_id: Mapped[str] = mapped_column(ForeignKey("workflows.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(16))  # StageState
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    failures: Mapped[int] = mapped_column(Integer, default=0)  # that count against its retries
    lingered: Mapped[bool] = mapped_column(Boolean, default=False)  # queued ahead in vain: not again
    job_id: Mapped[str | None] = mapped_column(String(16))  # of the latest attempt
    dropping: Mapped[bool] = mapped_column(Boolean, default=False)  # its job is being ended: what it needs has failed
    end_s: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text, default="")


class WorkflowRun(Base):
    """One attempt at an allocation: its job, which of its stages it was to run, and what it cost."""

    __tablename__ = "workflow_runs"

    workflow_id: Mapped[str] = mapped_column(ForeignKey("workflows.id"), primary_key=True)
    stage: Mapped[str] = mapped_column(String(64), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    stages: Mapped[list[Any]]
    ahead: Mapped[bool] = mapped_column(Boolean)  # queued before the stages that it needs had ended
    follows: Mapped[dict[str, Any] | None]  # batch jobs, by stage, that have to end well before Slurm starts it
    job_id: Mapped[str | None] = mapped_column(String(16))
    submit_s: Mapped[float]
    end_s: Mapped[float | None]
    outcome: Mapped[str] = mapped_column(String(16), default="")
    accounts: Mapped[dict[str, Any] | None]  # ejbd.manager.facts.flows.corehours, kept beyond the job's row

    __table_args__ = (Index("ix_workflow_runs_job", "job_id"),)
