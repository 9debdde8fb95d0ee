"""Decisions are kept with what was asked and what it costs, when they do something or say something new."""

from __future__ import annotations

from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.question import Question
from ejbd.manager.effects import Effects, note, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.roster import WaitingJob
from ejbd.manager.facts.room.verdicts import told, verdict
from ejbd.wire.kinds import decision_event


def is_news(world: JobWorld, decision: Decision) -> bool:
    """Whether a decision does something, or has another verdict than the last one stored."""
    return decision.kind is not DecisionKind.NOTHING or verdict(decision) != world.job.decision_key


def record(world: JobWorld, question: Question, decision: Decision) -> Effects[None]:
    """Store a decision that does something, or has another verdict than the last one stored."""
    job = world.job
    if not is_news(world, decision):
        return
    yield note(job, decision_key=verdict(decision), expected_completion_s=decision.expected_completion_s)
    kind = decision_event(decision.kind.value)
    data = told(world, question, decision)
    if isinstance(job, WaitingJob):
        yield note(job, told=(kind, data))
    else:
        yield tell(kind, job_id=job.id, **data)
