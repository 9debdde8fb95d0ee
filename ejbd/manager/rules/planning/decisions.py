"""Decisions are kept with what was asked and what it costs, when they do something or say something new."""

from __future__ import annotations

from typing import Any

from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.question import Question
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.roster import WaitingJob
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import decision_event


def verdict(decision: Decision) -> str:
    """What a decision says, by its codes: what is done, why, and what was weighed. Its sentences are not looked at."""
    weighed = ",".join(f"{c.name}{'+' if c.feasible else '-'}" for c in decision.candidates)
    return f"{decision.kind.value}:{decision.code}:{weighed}"


def record(world: JobWorld, question: Question, decision: Decision) -> None:
    """Store a decision that does something, or whose verdict is another than that of the last one stored."""
    key, job = verdict(decision), world.job
    if decision.kind is DecisionKind.NOTHING and key == job.decision_key:
        return
    job.decision_key, job.expected_completion_s = key, decision.expected_completion_s
    kind = decision_event(decision.kind.value)
    data = told(world, question, decision)
    if isinstance(job, WaitingJob):
        job.told = (kind, data)
    else:
        add_event(world.ctx.session, kind, world.ctx.now, job_id=job.id, **data)


def told(world: JobWorld, question: Question, decision: Decision) -> dict[str, Any]:
    """A decision with what was asked, and what things were thought to cost."""
    return {
        "decision": decision.to_json(),
        "question": question.to_json(),
        "cost": world.cost.to_json(),
        "penalty": world.penalty.to_json(),
        "overheads": world.overheads.to_json(),
    }
