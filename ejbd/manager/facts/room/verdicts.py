"""What a decision comes to, to be stored and compared."""

from __future__ import annotations

from typing import Any

from ejbd.core.decision import Decision
from ejbd.core.question import Question
from ejbd.manager.facts.jobworld import JobWorld


def verdict(decision: Decision) -> str:
    """What a decision says, by its codes: what is done, why, and what was weighed. Its sentences are not looked at."""
    weighed = ",".join(f"{c.name}{'+' if c.feasible else '-'}" for c in decision.candidates)
    return f"{decision.kind.value}:{decision.code}:{weighed}"


def told(world: JobWorld, question: Question, decision: Decision) -> dict[str, Any]:
    """A decision with what was asked, and what things were thought to cost."""
    return {
        "decision": decision.to_json(),
        "question": question.to_json(),
        "cost": world.cost.to_json(),
        "penalty": world.penalty.to_json(),
        "overheads": world.overheads.to_json(),
    }
