"""What is told of a workflow: how far it is, and its accounts (Eq. 1 to 7 of E-HPC)."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from ejbd.manager.facts.flows.corehours import of_job
from ejbd.manager.facts.flows.standing import Standing, run_of, runs_of, standing_of
from ejbd.store.models import Workflow, WorkflowRun, WorkflowStage
from ejbd.workflow.accounts import HOUR_S


def view(session: Session, workflow: Workflow) -> dict[str, Any]:
    """A workflow and its allocations, as the API shows them."""
    found = standing_of(session, workflow)
    return {
        "id": workflow.id,
        "name": workflow.name,
        "user": workflow.user,
        "state": workflow.state,
        "mode": found.plan.mode.value,
        "reason": workflow.reason,
        "submit_s": workflow.submit_s,
        "end_s": workflow.end_s,
        "stages": [_stage(found, stage) for stage in found.stages.values()],
    }


def _stage(found: Standing, stage: WorkflowStage) -> dict[str, Any]:
    group, job = found.groups[stage.name], found.job(stage)
    return {
        "name": stage.name,
        "stages": [one.name for one in group.stages],
        "needs": list(group.needs),
        "tasks": group.width,
        "walltime_s": group.walltime_s,
        "state": stage.state,
        "attempt": stage.attempt,
        "job": stage.job_id,
        "job_state": job.state if job is not None else None,
        "reason": stage.reason,
        "end_s": stage.end_s,
    }


def report(session: Session, workflow: Workflow, now: float) -> dict[str, Any]:
    """The accounts of a workflow until now, in seconds and core-hours.

    Each attempt with its job's core-hours; the same work in one allocation of the greatest width (Eq. 1), for which
    every attempt's run time counts, since it would be tried again there, too.
    """
    found = standing_of(session, workflow)
    attempts = [_attempt(session, found, run, now) for run in runs_of(session, workflow.id)]
    total = {key: round(sum(one["core_h"][key] for one in attempts), 6) for key in ("held", "used", "moves", "waits")}
    run_s = sum(one["run_s"] or 0.0 for one in attempts if one["outcome"] != "lingered")
    whole = found.plan.widest * run_s / HOUR_S
    return {
        "id": workflow.id,
        "name": workflow.name,
        "state": workflow.state,
        "submit_s": workflow.submit_s,
        "end_s": workflow.end_s,
        "turnaround_s": (workflow.end_s or now) - workflow.submit_s,
        "widest": found.plan.widest,
        "run_s": run_s,
        "wait_s": sum(one["wait_s"] or 0.0 for one in attempts),
        "core_h": total,
        "one_allocation_core_h": round(whole, 6),
        "saved_percent": round(100.0 * (1.0 - total["held"] / whole), 1) if whole else None,
        "attempts": attempts,
    }


def _attempt(session: Session, found: Standing, run: WorkflowRun, now: float) -> dict[str, Any]:
    group = found.groups[run.stage]
    kept = run.accounts or {}
    core_s, start_s = kept.get("core_s"), kept.get("start_s")
    if run.end_s is None and run.job_id is not None:
        core_s = dict(of_job(session, run.job_id, now))
        job = found.jobs.get(run.job_id)
        start_s = job.start_s if job is not None else None
    end_s = run.end_s if run.end_s is not None else now
    return {
        "stage": run.stage,
        "attempt": run.attempt,
        "stages": list(run.stages),
        "job": run.job_id,
        "ahead": run.ahead,
        "outcome": run.outcome,
        "tasks": group.width,
        "submit_s": run.submit_s,
        "start_s": start_s,
        "end_s": run.end_s,
        "run_s": None if start_s is None else max(0.0, end_s - start_s),
        "wait_s": max(0.0, (start_s if start_s is not None else end_s) - _asked_s(session, found, run, end_s)),
        "core_h": {key: round((core_s or {}).get(key, 0.0) / HOUR_S, 6) for key in ("held", "used", "moves", "waits")},
        "marks": kept.get("marks", []),
    }


def _asked_s(session: Session, found: Standing, run: WorkflowRun, end_s: float) -> float:
    """Since when it waits in the queue: what follows others in the batch system does so from their end on."""
    if not run.follows:
        return run.submit_s
    needs = [run_of(session, found.stages[name]) for name in run.follows]
    ends_s = [end_s if need is None or need.end_s is None else need.end_s for need in needs]
    return max(run.submit_s, *ends_s)
