"""What each launch of a script with `#EJB stages` held, beside what the script held throughout."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.manager.facts.charges import processor_s
from ejbd.store.models import Epoch, Job, Launch, Subjob
from ejbd.wire.payloads import LaunchHeldView, StepView


def of_stages(session: Session, job: Job, now: float) -> list[LaunchHeldView]:
    """In their order; none of a job without stages."""
    stages = job.spec.get("evolving") or {}
    if not stages.get("stages"):
        return []
    asked: dict[str, int] = stages.get("asked", {})
    beside: dict[int, float] = {}
    for subjob in session.scalars(select(Subjob).where(Subjob.job_id == job.id)):
        if subjob.id in asked:
            beside[asked[subjob.id]] = beside.get(asked[subjob.id], 0.0) + (processor_s(subjob, now) or 0.0)
    ran: dict[int, float] = {}
    begun: dict[int, float] = {}
    for epoch in session.scalars(select(Epoch).where(Epoch.job_id == job.id).order_by(Epoch.number)):
        if epoch.running_s is not None:
            over_s = now if epoch.ended_s is None else epoch.ended_s
            ran[epoch.launch_ordinal] = ran.get(epoch.launch_ordinal, 0.0) + over_s - epoch.running_s
            begun.setdefault(epoch.launch_ordinal, epoch.running_s)
    found: list[LaunchHeldView] = []
    for launch in session.scalars(select(Launch).where(Launch.job_id == job.id).order_by(Launch.ordinal)):
        waited_until_s = begun.get(launch.ordinal, now if launch.ended_s is None else launch.ended_s)
        found.append(
            {
                "ordinal": launch.ordinal,
                "ranks": launch.size,
                "wait_s": max(0.0, waited_until_s - launch.created_s),
                "run_s": ran.get(launch.ordinal, 0.0),
                "beside_processor_s": beside.get(launch.ordinal, 0.0),
                "code": launch.exit_code,
            }
        )
    return found


def steps(session: Session, job: Job) -> list[StepView]:
    """The launches of any job that has workers, in their order, each from its first rank to its last."""
    begun: dict[int, float] = {}
    for epoch in session.scalars(select(Epoch).where(Epoch.job_id == job.id).order_by(Epoch.number)):
        if epoch.running_s is not None:
            begun.setdefault(epoch.launch_ordinal, epoch.running_s)
    return [
        {
            "ordinal": launch.ordinal,
            "name": launch.name,
            "ranks": launch.size,
            "start_s": begun.get(launch.ordinal),
            "end_s": launch.ended_s,
            "code": launch.exit_code,
        }
        for launch in session.scalars(select(Launch).where(Launch.job_id == job.id).order_by(Launch.ordinal))
    ]
