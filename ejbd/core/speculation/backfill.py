"""Speculative backfill (section 4.3): which job is sent into a gap that its request is too long for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ejbd.core.speculation.laws import Law


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that waits. `tried_s`: the longest walltime that was not enough for it so far (0: none)."""

    job: str
    processors: int
    law: Law
    tried_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GapChoice:
    """The job that goes into a gap. `utilisation`: the share of the gap that is expected to be of use; `finishes`: the
    probability that the run is done in it."""

    job: str
    utilisation: float
    finishes: float


def expected_utilisation(candidate: Candidate, processors: int, duration_s: float) -> GapChoice:
    """What is to be expected of a candidate in a gap of so many processors and seconds."""
    law = candidate.law
    left = law.survival(candidate.tried_s)
    if candidate.processors > processors or duration_s <= candidate.tried_s or left <= 0.0 or duration_s <= 0.0:
        return GapChoice(candidate.job, 0.0, 0.0)
    used = law.part_of_mean(candidate.tried_s, duration_s) / left
    finishes = 1.0 - law.survival(duration_s) / left
    return GapChoice(candidate.job, candidate.processors * used / (processors * duration_s), finishes)


def choose(candidates: Iterable[Candidate], processors: int, duration_s: float) -> GapChoice | None:
    """The one that makes the most of the gap in expectation, of equals the first; None where none may finish."""
    best: GapChoice | None = None
    for candidate in candidates:
        found = expected_utilisation(candidate, processors, duration_s)
        if found.utilisation > 0.0 and (best is None or found.utilisation > best.utilisation):
            best = found
    return best
