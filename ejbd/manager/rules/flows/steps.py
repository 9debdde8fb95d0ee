"""A workflow's next step: ends are seen, what is ready becomes a job, and when nothing is left it has ended.

A job is made outside of transactions, as a user's submission is: under a key that is the same however often it is tried
(ejbd.manager.submission.flows). Before, the allocation is `submitting`; a daemon that dies then makes the same job.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from ejbd.manager.effects import CancelJob, Effects, Insert, MoveStage, MoveWorkflow, note
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.flows.corehours import of_job
from ejbd.manager.facts.flows.files import Looked
from ejbd.manager.facts.flows.following import for_the_word, is_outdated, may_follow, outdated
from ejbd.manager.facts.flows.standing import Standing, is_leaving, run_of, standing
from ejbd.store.models import Job, WorkflowRun, WorkflowStage
from ejbd.store.states import JobState, StageState, WorkflowState
from ejbd.workflow.script import NOT_THERE, NOT_YET


def step(ctx: Context, id: str, looked: Looked) -> Effects[None]:
    """Go on with a workflow as far as what was looked at allows."""
    found = standing(ctx, id)
    if found.workflow.state != WorkflowState.RUNNING:
        return
    for stage in found.ends:
        yield from _end(ctx, found, stage, looked)
    if (by := found.workflow.cancelled_by) is not None:
        for stage in found.stages.values():
            run = run_of(ctx.session, stage)
            if stage.state == StageState.SUBMITTING and run is not None and not found.was_made(ctx.session, stage):
                yield note(run, end_s=ctx.now, outcome="cancelled")
                yield MoveStage(stage, StageState.CANCELLED, f"cancelled by {by}")
    if not found.stuck:
        for stage in found.ready():
            if stage.name in looked.current:
                yield from _begin(ctx, found, stage, looked)
        for name, after in may_follow(found, ctx.view).items():
            ahead = for_the_word(found, after)
            yield from _submitting(ctx, found, found.stages[name], 0, ahead=ahead, after=after)
        for stage in found.ahead(ctx.now):
            yield from _submitting(ctx, found, stage, 0, ahead=True)
    yield from conclude(ctx, found)


def _end(ctx: Context, found: Standing, stage: WorkflowStage, looked: Looked) -> Effects[None]:
    """A job has ended: well, or it is tried again, or the stage has failed."""
    job, run = found.job(stage), run_of(ctx.session, stage)
    group = found.groups[stage.name]
    if len(group.stages) > 1 and stage.name not in looked.marks:
        return  # it has ended since
    state = JobState(job.state) if job is not None else None
    lingered = job is not None and job.exit_code == NOT_YET and run is not None and run.ahead and not stage.lingered
    if run is not None:
        accounts = dict(of_job(ctx.session, job.id, ctx.now, idle=lingered)) if job is not None else None
        marks = [
            {"stage": mark.stage, "begin_s": mark.begin_s, "end_s": mark.end_s, "code": mark.code}
            for mark in looked.marks.get(stage.name, ())
        ]
        told = {"start_s": job.start_s if job is not None else None, "marks": marks, "core_s": accounts}
        outcome = "lingered" if lingered else state.value if state is not None else "unknown"
        yield note(run, end_s=job.end_s if job is not None else ctx.now, outcome=outcome, accounts=told)
    if state is JobState.COMPLETED:
        yield MoveStage(stage, StageState.COMPLETED)
        return
    if found.workflow.cancelled_by is not None:
        yield MoveStage(stage, StageState.CANCELLED, f"cancelled by {found.workflow.cancelled_by}")
        return
    if stage.dropping:
        yield MoveStage(stage, StageState.DROPPED, "what it needs has not ended well")
        return
    if is_outdated(found, stage):
        yield MoveStage(stage, StageState.WAITING, "what it was to follow has not ended well")
        return
    if stage.name in found.after and job is not None and job.start_s is None and state is JobState.FAILED:
        yield note(stage, lingered=True)
        yield MoveStage(stage, StageState.WAITING, f"it could not be queued ahead: {job.reason}")
        return
    if lingered:
        yield note(stage, lingered=True)
        yield MoveStage(stage, StageState.WAITING, "it was queued ahead, and what it needs has not ended in time")
        return
    if stage.name in found.after and job is not None and job.exit_code == NOT_THERE and group.stages[0].inputs:
        wanted = ", ".join(map(repr, group.stages[0].inputs))
        yield MoveStage(stage, StageState.FAILED, f"of the inputs {wanted} of stage {stage.name} one is not there")
        return
    why = "its job is not known any more" if job is None else _why(job.id, job.state, job.exit_code, job.reason)
    again = state in (JobState.FAILED, JobState.TIMEOUT) and stage.failures < group.retries and not found.stuck
    if again:
        yield note(stage, failures=stage.failures + 1)
        yield MoveStage(stage, StageState.WAITING, f"{why}; it is tried again")
    else:
        yield MoveStage(stage, StageState.FAILED, why)


def _why(id: str, state: str, code: int | None, reason: str) -> str:
    said = f" with code {code}" if code else ""
    return f"job {id} {'ran out of time' if state == JobState.TIMEOUT else state}{said}" + (
        f": {reason}" if reason else ""
    )


def _begin(ctx: Context, found: Standing, stage: WorkflowStage, looked: Looked) -> Effects[None]:
    """What it needs is there: it has nothing to do, cannot begin, or becomes a job."""
    if missing := looked.missing.get(stage.name):
        yield MoveStage(stage, StageState.FAILED, missing)
        return
    first = looked.current[stage.name]
    if first == len(found.groups[stage.name].stages):
        yield MoveStage(stage, StageState.SKIPPED, "its outputs are newer than its inputs")
        return
    yield from _submitting(ctx, found, stage, first)


def _submitting(
    ctx: Context,
    found: Standing,
    stage: WorkflowStage,
    first: int,
    *,
    ahead: bool = False,
    after: Mapping[str, str] | None = None,
) -> Effects[None]:
    """A job is about to be made for it. Of stages that share it, those go that have ended well in an earlier try."""
    names = [one.name for one in found.groups[stage.name].stages][first:]
    before = run_of(ctx.session, stage)
    if before is not None and before.accounts is not None:
        done = {mark["stage"] for mark in before.accounts["marks"] if mark["code"] == 0}
        earlier = [name for name in before.stages if name not in done]
        names = [name for name in names if name in earlier] or names
    yield note(stage, attempt=stage.attempt + 1, job_id=None)
    yield Insert(
        WorkflowRun(
            workflow_id=stage.workflow_id,
            stage=stage.name,
            attempt=stage.attempt,
            stages=names,
            ahead=ahead,
            follows=None if after is None else dict(after),
            submit_s=ctx.now,
        )
    )
    yield MoveStage(stage, StageState.SUBMITTING)


def submitted(ctx: Context, id: str, name: str, attempt: int, job_id: str) -> Effects[None]:
    """Its job was made. Where its user has ended the workflow meanwhile, the job is ended, too."""
    found = standing(ctx, id)
    stage = found.stages[name]
    run = run_of(ctx.session, stage)
    if stage.state != StageState.SUBMITTING or stage.attempt != attempt or run is None:
        return
    yield note(stage, job_id=job_id)
    yield note(run, job_id=job_id)
    yield MoveStage(stage, StageState.SUBMITTED)
    job = ctx.session.scalar(select(Job).where(Job.id == job_id))
    if found.workflow.cancelled_by is not None and job is not None and not JobState(job.state).terminal:
        yield CancelJob(job_id, found.workflow.cancelled_by)


def refused(ctx: Context, id: str, name: str, attempt: int, why: str) -> Effects[None]:
    """No job could be made of it, and none ever will."""
    found = standing(ctx, id)
    stage = found.stages[name]
    run = run_of(ctx.session, stage)
    if stage.state != StageState.SUBMITTING or stage.attempt != attempt or run is None:
        return
    yield note(run, end_s=ctx.now, outcome="refused")
    if run.follows is not None:
        yield note(stage, lingered=True)
        yield MoveStage(stage, StageState.WAITING, f"it could not be queued ahead: {why}")
    else:
        yield MoveStage(stage, StageState.FAILED, why)
    yield from conclude(ctx, standing(ctx, id))


def conclude(ctx: Context, found: Standing) -> Effects[None]:
    """Let go what can never begin; where nothing is left to wait for, the workflow has ended."""
    by = found.workflow.cancelled_by
    dropping = True
    while dropping:
        dropping = False
        for name, stage in found.stages.items():
            if stage.state != StageState.WAITING:
                continue
            lost = [
                need for need in found.groups[name].needs if found.state(need).terminal and not found.state(need).done
            ]
            if by is not None:
                yield MoveStage(stage, StageState.CANCELLED, f"cancelled by {by}")
            elif lost or found.stuck:
                failed = lost or [one for one in found.stages if found.state(one) is StageState.FAILED]
                yield MoveStage(stage, StageState.DROPPED, f"stage {failed[0]} has not ended well")
            else:
                continue
            dropping = True
    # What was queued ahead of a stage that has failed waits for a word that never comes.
    for name, stage in found.stages.items():
        lost = [need for need in found.groups[name].needs if found.state(need).terminal and not found.state(need).done]
        job = found.job(stage)
        alive = job is not None and not JobState(job.state).terminal
        if lost and stage.state == StageState.SUBMITTED and alive and job is not None and not stage.dropping:
            yield note(stage, dropping=True)
            yield CancelJob(job.id, found.workflow.user)
    for stage in outdated(found):
        if (job := found.job(stage)) is not None and not is_leaving(ctx.session, job.id):
            yield CancelJob(job.id, found.workflow.user)
    if any(not found.state(name).terminal for name in found.stages):
        return
    bad = [name for name in found.stages if not found.state(name).done]
    if by is not None:
        yield MoveWorkflow(found.workflow, WorkflowState.CANCELLED, f"cancelled by {by}")
    elif bad:
        first = next((name for name in bad if found.state(name) is StageState.FAILED), bad[0])
        yield MoveWorkflow(found.workflow, WorkflowState.FAILED, f"stage {first}: {found.stages[first].reason}")
    else:
        yield MoveWorkflow(found.workflow, WorkflowState.COMPLETED)
