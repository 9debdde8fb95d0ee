"""What is told of one job to explain it: types."""

from __future__ import annotations

from typing import Any, TypedDict

from ejbd.core.evolving.course import Course
from ejbd.manager.facts.past.told import ToldMove, ToldSpeed, ToldWholeRun
from ejbd.manager.facts.placing.movability import ToldMovability
from ejbd.manager.facts.placing.widths import ToldApplication
from ejbd.manager.rules.signals.periodic import ToldCheckpoints


class ToldCourse(TypedDict):
    """The widths of an evolving job: `steps` (seconds and places), when each begins, and when the last one ends.

    `base`: places that it holds throughout.
    """

    steps: list[list[float]]
    starts_s: list[float]
    end_s: float
    base: int


def told_course(course: Course) -> ToldCourse:
    """A course as a caller is told it."""
    return {
        "steps": course.profile.to_json(),
        "starts_s": list(course.starts_s),
        "end_s": course.end_s,
        "base": course.base,
    }


class ToldDecision(TypedDict):
    """A decision as it was stored, when it was taken, and the figures that it was taken by (None: not stored)."""

    at_s: float
    kind: str
    decision: dict[str, Any]
    cost: dict[str, Any] | None
    penalty: dict[str, Any] | None
    overheads: dict[str, Any] | None


class ToldExplanation(TypedDict):
    """Why a job is where it is: `now` in one sentence. `notes`: what was told when it was submitted. `present`: what
    the policy says now, where it may be asked.

    Figures are as planning sees them now; None of a job that is passed through.
    """

    state: str
    now: str
    notes: list[str]
    decisions: list[ToldDecision]
    present: dict[str, Any] | None
    planned: list[dict[str, Any]]
    cost: dict[str, Any] | None
    penalty: dict[str, Any] | None
    deltas: list[dict[str, Any]]
    overheads: dict[str, Any] | None
    checkpoints: ToldCheckpoints | None
    movable: ToldMovability | None
    moves: list[ToldMove]
    speeds: list[ToldSpeed]
    runs: list[ToldWholeRun]
    walltimes: dict[str, Any] | None
    application: ToldApplication | None
