"""How far a workflow is: its plan, its allocations, and their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.view import BatchState, ClusterView
from ejbd.manager.facts.context import Context
from ejbd.store.models import IdempotencyKey, Job, Subjob, Workflow, WorkflowRun, WorkflowStage
from ejbd.store.states import JobState, StageState, SubjobState, WorkflowState
from ejbd.wire.kinds import JobKind, SubjobRole
from ejbd.workflow.graph import Group, groups
from ejbd.workflow.plan import OnFailure, Plan, PlanMode

_GOES_ON = (BatchState.PENDING, BatchState.HELD, BatchState.RUNNING, BatchState.SUSPENDED)
RETRY_S = 10.0  # after a job could not be made for a reason that passes


def key_of(id: str, stage: str, attempt: int) -> str:
    """Under which the job of an attempt is submitted: the same one however often that is tried."""
    return f"workflow/{id}/{stage}/{attempt}"


@dataclass(frozen=True)
class Standing:
    """One workflow in one transaction."""

    workflow: Workflow
    stages: Mapping[str, WorkflowStage]
    jobs: Mapping[str, Job]
    after: Mapping[str, Mapping[str, str]]  # of allocations that follow others in the batch system: its jobs, by need
    numbers: Mapping[str, str]  # of jobs, by their ids: the one batch job, or the present J0
    view: ClusterView | None = None  # of the latest poll

    @cached_property
    def plan(self) -> Plan:
        return Plan.from_json(self.workflow.plan)

    @cached_property
    def groups(self) -> Mapping[str, Group]:
        return {group.name: group for group in groups(self.plan)}

    def state(self, name: str) -> StageState:
        return StageState(self.stages[name].state)

    def job(self, stage: WorkflowStage) -> Job | None:
        return None if stage.job_id is None else self.jobs.get(stage.job_id)

    def was_made(self, session: Session, stage: WorkflowStage) -> bool:
        """Whether there is a job of an allocation that is `submitting`: its daemon died before it was noted."""
        key = key_of(stage.workflow_id, stage.name, stage.attempt)
        return session.get(IdempotencyKey, (self.workflow.user, key)) is not None

    @property
    def ends(self) -> list[WorkflowStage]:
        """Allocations with a job that has ended, or is no longer known.

        Not yet one that was to follow and has not begun, while what it needs may be ending: that would explain its end.
        What the batch system shows to be running explains none: a user has ended what was to follow.
        """
        found = []
        for stage in self.stages.values():
            job = self.job(stage)
            over = stage.state == StageState.SUBMITTED and (job is None or JobState(job.state).terminal)
            if over and not (job is not None and job.start_s is None and self._may_be_explained(stage)):
                found.append(stage)
        return found

    def _may_be_explained(self, stage: WorkflowStage) -> bool:
        for need, number in self.after.get(stage.name, {}).items():
            job = self.job(self.stages[need])
            if job is None or JobState(job.state).terminal or self.numbers.get(job.id) != number:
                continue
            if self.view is None or not any(seen.id == number and seen.state in _GOES_ON for seen in self.view.jobs):
                return True
        return False

    @property
    def stuck(self) -> bool:
        """Whether nothing new may begin: its user has ended it, or a stage has failed for good."""
        failed = any(self.state(name) is StageState.FAILED for name in self.stages)
        return self.workflow.cancelled_by is not None or (failed and self.plan.on_failure is OnFailure.STOP)

    def ready(self) -> list[WorkflowStage]:
        """Allocations that wait, with all that they need."""
        return [
            stage
            for name, stage in self.stages.items()
            if stage.state == StageState.WAITING and all(self.state(need).done for need in self.groups[name].needs)
        ]

    def ahead(self, now: float) -> list[WorkflowStage]:
        """Allocations that are to be queued ahead: what they need runs, and is expected to end soon (fast mode)."""
        if self.plan.mode is not PlanMode.FAST:
            return []
        found = []
        for name, stage in self.stages.items():
            needs = [self.stages[need] for need in self.groups[name].needs]
            open_ones = [need for need in needs if not StageState(need.state).done]
            if stage.state != StageState.WAITING or stage.lingered or not open_ones:
                continue
            if self.groups[name].stages[0].profile is not None:
                continue  # its widths go by the clock from its start on: it would waste them while it waits
            ends_s = [self.expected_end_s(need) for need in open_ones]
            if all(end_s is not None and end_s - self.plan.ahead_s <= now for end_s in ends_s):
                found.append(stage)
        return found

    def expected_end_s(self, stage: WorkflowStage) -> float | None:
        """When an allocation that runs should be over: as its job is planned, else by its walltime."""
        job = self.job(stage)
        if stage.state != StageState.SUBMITTED or job is None or job.state != JobState.RUNNING or job.start_s is None:
            return None
        return job.expected_completion_s or job.start_s + self.groups[stage.name].walltime_s


_OPEN = select(Workflow.id, Workflow.user).where(Workflow.state == WorkflowState.RUNNING).order_by(Workflow.seq)


def open_ids(session: Session) -> list[tuple[str, str]]:
    """The workflows that go on, oldest first, each with its user."""
    return [(row.id, row.user) for row in session.execute(_OPEN)]


def standing(ctx: Context, id: str) -> Standing:
    """The workflow of this id, which is there."""
    return standing_of(ctx.session, ctx.session.scalars(select(Workflow).where(Workflow.id == id)).one(), ctx.view)


def standing_of(session: Session, workflow: Workflow, view: ClusterView | None = None) -> Standing:
    query = select(WorkflowStage).where(WorkflowStage.workflow_id == workflow.id).order_by(WorkflowStage.ordinal)
    stages = list(session.scalars(query))
    ids = [stage.job_id for stage in stages if stage.job_id is not None]
    jobs = session.scalars(select(Job).where(Job.id.in_(ids))) if ids else ()
    found = {job.id: job for job in jobs}
    runs = select(WorkflowRun.stage, WorkflowRun.attempt, WorkflowRun.follows)
    after = {
        (row.stage, row.attempt): row.follows
        for row in session.execute(runs.where(WorkflowRun.workflow_id == workflow.id))
    }
    latest = {stage.name: after.get((stage.name, stage.attempt)) for stage in stages}
    return Standing(
        workflow,
        {stage.name: stage for stage in stages},
        found,
        {name: dict(some) for name, some in latest.items() if some},
        _numbers(session, found),
        view,
    )


def _numbers(session: Session, jobs: Mapping[str, Job]) -> dict[str, str]:
    """What the batch system calls each job: its one batch job, or its J0. None where it goes on without a J0."""
    query = (
        select(Subjob.job_id, Subjob.batch_id, Subjob.state)
        .where(Subjob.job_id.in_([job.id for job in jobs.values() if job.kind != JobKind.ARRAY]))
        .where(Subjob.batch_id.is_not(None), Subjob.role.in_((SubjobRole.RIGID, SubjobRole.PLACEHOLDER)))
    )
    found: dict[str, str] = {}
    for id, number, state in session.execute(query.order_by(Subjob.ordinal)):
        goes_on = jobs[id].elastic and jobs[id].state in (JobState.WAITING, JobState.RUNNING)
        if goes_on and SubjobState(state).terminal:
            found.pop(id, None)
        elif number is not None:
            found[id] = number
    return found


def is_leaving(session: Session, job_id: str) -> bool:
    """Whether the batch system has been told to end what there is of a job."""
    return session.scalar(select(Subjob.id).where(Subjob.job_id == job_id, Subjob.releasing).limit(1)) is not None


def run_of(session: Session, stage: WorkflowStage) -> WorkflowRun | None:
    """The latest attempt at an allocation."""
    return session.get(WorkflowRun, (stage.workflow_id, stage.name, stage.attempt))


def runs_of(session: Session, id: str) -> list[WorkflowRun]:
    """Every attempt of a workflow, oldest first."""
    query = select(WorkflowRun).where(WorkflowRun.workflow_id == id)
    return list(session.scalars(query.order_by(WorkflowRun.submit_s, WorkflowRun.stage, WorkflowRun.attempt)))
