"""A policy as a site would write it: one file, which nothing of EJB knows. Tests put it where they need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.policy import Bundling
from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.parameters import Parameter, Parameters
from ejbd.core.policy import register
from ejbd.core.progress import degree
from ejbd.core.shapes import BackfillSlot
from ejbd.core.state import ElasticState


@dataclass(frozen=True, slots=True)
class PatientParameters(BundlingParameters):
    """Bundling's, and how crowded a start may be."""

    most_at_start: Annotated[
        int,
        Parameter(
            says="highest degree of over-subscription that a job is started at", least=1, most=64, queue=2, per_job=True
        ),
    ] = 4


@register
class Patient(Bundling):
    """Bundling that would rather wait than start very crowded; the widest jobs look for room first."""

    name = "patient"
    declares: ClassVar[type[Parameters]] = PatientParameters
    parameters: PatientParameters

    def visit_key(self, waiting: bool, processes: int, work_left_s: float) -> tuple[float, float]:
        return (0.0 if waiting else 1.0), -processes

    def waits(self, state: ElasticState, slots: Sequence[BackfillSlot], now: float) -> Decision:
        found = super().waits(state, slots, now)
        started = sum(request.processors for request in found.requests)
        if not started or degree(state.processes, started) <= self.parameters.most_at_start:
            return found
        why = "too crowded a start: it waits"
        return Decision(DecisionKind.NOTHING, state.job, now, why, slots=tuple(slots), code="too_crowded")
