"""Rows of the store as the API's models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.api.models import EventView, IntervalView, JobDetail, JobView, PlannedView, SubjobView, Timeline
from ejbd.manager.linked import arrays, elements
from ejbd.manager.planning.outlook import PlannedTimeline
from ejbd.manager.times import work_now
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


def processors_held(jobs: Sequence[Job], session: Session) -> dict[str, int]:
    """Processors of the running subjobs of each job; one query, and another where arrays are among them."""
    ids = [job.id for job in jobs if not JobState(job.state).terminal]
    held: dict[str, int] = {}
    runs = Subjob.state == SubjobState.RUNNING.value
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
    held, now, counts = processors_held(jobs, session), time.time(), elements.counts(session, jobs)
    return [JobView(**_job_fields(job, held.get(job.id, 0), now, counts.get(job.id))) for job in jobs]


def job_detail(job: Job, session: Session) -> JobDetail:
    """A job with its subjobs."""
    subjobs = queries.job_subjobs(session, job.id)
    held = processors_held([job], session).get(job.id, 0)
    counts = elements.counts(session, [job]).get(job.id)
    return JobDetail(
        **_job_fields(job, held, time.time(), counts),
        element_indices=elements.indices(session, job.id) if counts is not None else None,
        cwd=str(job.spec.get("cwd", "")),
        command=[str(word) for word in job.spec.get("argv", [])],
        incarnation=job.incarnation,
        subjobs=subjob_views(job, subjobs),
    )


def subjob_views(job: Job, subjobs: Iterable[Subjob]) -> list[SubjobView]:
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
        subjobs=subjob_views(job, queries.job_subjobs(session, job.id)),
    )


def _job_fields(job: Job, held: int, now: float, counts: dict[str, int] | None) -> dict[str, object]:
    done = progress(job, now)
    if counts is not None:  # of an array: the share of its elements that have ended
        done = sum(counts.get(state, 0) for state in TERMINAL_JOB) / max(1, sum(counts.values()))
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
        "processors": held,
        "walltime_s": job.walltime_s,
        "held": job.held,
        "submit_s": job.submit_s,
        "start_s": job.start_s,
        "end_s": ended_s(job),
        "rigid_start_s": job.rigid_start_s,
        "expected_completion_s": job.expected_completion_s,
        "progress": done,
        "exit_code": job.exit_code,
        "reason": job.reason,
        "array": job.array_id,
        "index": job.array_index,
        "elements": counts,
    }
