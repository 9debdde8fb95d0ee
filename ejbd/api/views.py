"""Rows of the store as the API's models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from ejbd.api.models import (
    EventView,
    IntervalView,
    JobDetail,
    JobView,
    LaunchHeldView,
    PlannedView,
    StepView,
    SubjobView,
    Timeline,
)
from ejbd.manager.facts import arrays, launches
from ejbd.manager.facts.charges import processor_s
from ejbd.manager.facts.room.outlook import PlannedTimeline
from ejbd.manager.facts.times import work_now
from ejbd.manager.jobspec.ownwords import words_of
from ejbd.manager.rules.linked import elements
from ejbd.store import queries
from ejbd.store.models import Event, Job, Subjob
from ejbd.store.states import TERMINAL_JOB, JobState, SubjobState
from ejbd.store.timeline import intervals
from ejbd.wire.kinds import JobKind


def progress(job: Job, now: float) -> float:
    """Share of the requested work that is done: 1 once completed."""
    if job.state == JobState.COMPLETED:
        return 1.0
    end = job.end_s if job.end_s is not None else now
    return min(1.0, max(0.0, work_now(job, end) / job.walltime_s)) if job.walltime_s > 0 else 0.0


def ended_s(job: Job) -> float | None:
    """When a job was over; None while its output is still being collected."""
    return job.end_s if JobState(job.state).terminal else None


def final_state(job: Job) -> JobState | None:
    """What a job that is ending will become, as far as is known."""
    return JobState(job.final_state) if job.state == JobState.ENDING and job.final_state else None


def processors_held(jobs: Sequence[Job], session: Session) -> dict[str, int]:
    """Processors of the running subjobs of each job, without those that are given back or lost; one query, and another
    where arrays are among them."""
    ids = [job.id for job in jobs if not JobState(job.state).terminal]
    held: dict[str, int] = {}
    runs = (Subjob.state == SubjobState.RUNNING.value) & ~Subjob.releasing
    if ids:
        for job_id, processors in session.execute(
            select(Subjob.job_id, Subjob.processors).where(Subjob.job_id.in_(ids), runs)
        ):
            held[job_id] = held.get(job_id, 0) + processors
    if arrays_too := [job.id for job in jobs if job.kind == JobKind.ARRAY and not JobState(job.state).terminal]:
        of_elements = select(Job.array_id, Subjob.processors).join(Job, Subjob.job_id == Job.id)
        for array_id, processors in session.execute(of_elements.where(Job.array_id.in_(arrays_too), runs)):
            held[array_id or ""] = held.get(array_id or "", 0) + processors
    return held


def job_views(jobs: Sequence[Job], session: Session) -> list[JobView]:
    """Jobs as a list shows them."""
    now, counts = time.time(), elements.counts(session, jobs)
    beside = _beside(jobs, session, now)
    return [JobView(**_job_fields(job, beside[job.id], now, counts.get(job.id))) for job in jobs]


class JobRow(NamedTuple):
    """A job in a list that is looked at: what stands in its row, and nothing that takes longer to find out."""

    id: str
    name: str
    user: str
    queue: str
    state: JobState
    held: bool
    processors: int
    processes: int
    progress: float
    submit_s: float
    start_s: float | None
    end_s: float | None  # it ended, or is to end
    number: str | None
    reason: str
    planned_s: float | None  # its J0 is planned to start then
    final_state: JobState | None


ROW_HAS = load_only(
    *(Job.seq, Job.id, Job.name, Job.user, Job.queue, Job.state, Job.kind, Job.held, Job.processes, Job.walltime_s),
    *(Job.number, Job.reason, Job.rigid_start_s, Job.final_state),
    *(Job.submit_s, Job.start_s, Job.end_s, Job.expected_completion_s, Job.work_s, Job.work_rate, Job.work_as_of_s),
    raiseload=True,
)
"""What is read of jobs for their rows: their requests and members, which are JSON, take as long as all the rest."""


def job_rows(jobs: Sequence[Job], session: Session) -> list[JobRow]:
    now, counts, held = time.time(), elements.counts(session, jobs), processors_held(jobs, session)
    return [
        JobRow(
            *(job.id, job.name, job.user, job.queue, JobState(job.state), job.held, held.get(job.id, 0)),
            *(job.processes, share_done(job, now, counts.get(job.id)), job.submit_s, job.start_s),
            job.expected_completion_s if (end_s := ended_s(job)) is None else end_s,
            *(job.number, job.reason, job.rigid_start_s),
            final_state(job),
        )
        for job in jobs
    ]


def share_done(job: Job, now: float, counts: dict[str, int] | None) -> float:
    """Of the requested work; of an array (`counts`) the share of its elements that have ended."""
    if counts is None:
        return progress(job, now)
    return sum(counts.get(state, 0) for state in TERMINAL_JOB) / max(1, sum(counts.values()))


def job_detail(job: Job, session: Session) -> JobDetail:
    """A job with its subjobs."""
    subjobs = queries.job_subjobs(session, job.id)
    counts, now = elements.counts(session, [job]).get(job.id), time.time()
    return JobDetail(
        **_job_fields(job, _beside([job], session, now)[job.id], now, counts),
        element_indices=elements.indices(session, job.id) if counts is not None else _indices(subjobs),
        cwd=str(job.spec.get("cwd", "")),
        script=job.spec.get("script_path"),
        command=[str(word) for word in job.spec.get("argv", [])],
        settings=words_of(job.spec),
        incarnation=job.incarnation,
        alone_processor_s=_alone(job, now),
        most_at_once=elements.most_at_once(session, job.id) if job.kind == JobKind.ARRAY else None,
        output=job.spec.get("output"),
        error=job.spec.get("error"),
        steps=[StepView.model_validate(one) for one in launches.steps(session, job)],
        launches=[LaunchHeldView.model_validate(one) for one in launches.of_stages(session, job, now)],
        subjobs=subjob_views(job, subjobs, now),
    )


def _indices(subjobs: Sequence[Subjob]) -> dict[str, str] | None:
    """Which elements of an array of the batch system's own are in which state; None of what is none."""
    kept = next((s.elements for s in reversed(subjobs) if s.elements and s.elements["all"] is not None), None)
    return arrays.which(kept) if kept is not None else None


class _Beside(NamedTuple):
    """What other rows have of a job."""

    held: int
    nodes: list[str]
    array_number: str | None
    elements: dict[str, int] | None  # of an array of the batch system's own
    batch_ids: list[str]
    processor_s: float | None


def _together(charges: Sequence[float | None]) -> float | None:
    known = [charge for charge in charges if charge is not None]
    return sum(known) if len(known) == len(charges) else None


def _beside(jobs: Sequence[Job], session: Session, now: float) -> dict[str, _Beside]:
    held = processors_held(jobs, session)
    nodes: dict[str, dict[str, None]] = {job.id: {} for job in jobs}
    ended = {job.id for job in jobs if JobState(job.state).terminal}
    of_batch: dict[str, dict[str, int]] = {}
    batch_ids: dict[str, list[str]] = {job.id: [] for job in jobs}
    charges: dict[str, list[float | None]] = {job.id: [] for job in jobs}
    rows = select(
        *(Subjob.job_id, Subjob.state, Subjob.nodes, Subjob.elements, Subjob.batch_id),
        *(Subjob.processors, Subjob.start_s, Subjob.end_s),
    ).where(Subjob.job_id.in_(nodes))
    for row in session.execute(rows.order_by(Subjob.ordinal)):
        job_id, kept = row.job_id, row.elements
        if row.state == SubjobState.RUNNING or job_id in ended:
            nodes[job_id].update(dict.fromkeys(str(name) for name in row.nodes))
        if kept and kept["all"] is not None:
            of_batch[job_id] = arrays.counts(kept)
        if row.batch_id is not None:
            batch_ids[job_id].append(row.batch_id)
            charges[job_id].append(processor_s(row, now))
    arrays_of = {job.array_id for job in jobs if job.array_id is not None}
    numbers: dict[str, str | None] = {}
    if arrays_of:
        numbered = session.execute(select(Job.id, Job.number).where(Job.id.in_(arrays_of)))
        numbers = {row.id: row.number for row in numbered}
    return {
        job.id: _Beside(
            held.get(job.id, 0),
            list(nodes[job.id]),
            numbers.get(job.array_id or ""),
            of_batch.get(job.id),
            batch_ids[job.id],
            _together(charges[job.id]),
        )
        for job in jobs
    }


def subjob_views(job: Job, subjobs: Iterable[Subjob], now: float) -> list[SubjobView]:
    return [
        SubjobView(
            id=s.id,
            ordinal=s.ordinal,
            role=s.role,
            state=SubjobState(s.state),
            batch_id=s.batch_id,
            processors=s.processors,
            walltime_s=s.walltime_s,
            nodes=[str(node) for node in s.nodes],
            member=s.id in job.members,
            planned_start_s=s.planned_start_s,
            start_s=s.start_s,
            end_s=s.end_s,
            reason=s.reason,
            elements=arrays.counts(s.elements) if s.elements is not None else None,
            processor_s=processor_s(s, now),
        )
        for s in subjobs
    ]


def event_view(event: Event) -> EventView:
    return EventView(
        id=event.id, at_s=event.at_s, job=event.job_id, subjob=event.subjob_id, kind=event.kind, data=event.data
    )


def planned_view(planned: PlannedTimeline) -> list[PlannedView]:
    return [PlannedView.model_validate(interval.to_json()) for interval in planned]


def timeline(job: Job, session: Session) -> Timeline:
    """What a job did until now."""
    now = time.time()
    return Timeline(
        job=job.id,
        name=job.name,
        state=JobState(job.state),
        now_s=now,
        submit_s=job.submit_s,
        start_s=job.start_s,
        end_s=ended_s(job),
        processes=job.processes,
        progress=progress(job, now),
        rigid_start_s=job.rigid_start_s,
        expected_completion_s=job.expected_completion_s,
        intervals=[
            IntervalView(
                kind=i.kind, start_s=i.start_s, end_s=i.end_s, processors=i.processors, subjobs=list(i.subjobs)
            )
            for i in intervals(session, job.id)
        ],
        subjobs=subjob_views(job, queries.job_subjobs(session, job.id), now),
    )


def _alone(job: Job, now: float) -> float | None:
    """What a rigid job would have been charged for the same work, at full width."""
    if not job.elastic or job.kind == JobKind.ARRAY:
        return None
    return job.processes * float(job.spec.get("threads", 1)) * work_now(job, now if job.end_s is None else job.end_s)


def _job_fields(job: Job, beside: _Beside, now: float, counts: dict[str, int] | None) -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "state": JobState(job.state),
        "elastic": job.elastic,
        "kind": job.kind,
        "engine": job.engine,
        "processes": job.processes,
        "processors": beside.held,
        "walltime_s": job.walltime_s,
        "held": job.held,
        "submit_s": job.submit_s,
        "start_s": job.start_s,
        "end_s": ended_s(job),
        "rigid_start_s": job.rigid_start_s,
        "expected_completion_s": job.expected_completion_s,
        "progress": share_done(job, now, counts),
        "exit_code": job.exit_code,
        "exit_signal": job.exit_signal,
        "final_state": final_state(job),
        "reason": job.reason,
        "number": job.number,
        "nodes": beside.nodes,
        "array": job.array_id,
        "array_number": beside.array_number,
        "index": job.array_index,
        "elements": counts if counts is not None else beside.elements,
        "batch_ids": beside.batch_ids,
        "processor_s": beside.processor_s,
    }
