"""The widths of an application that is restarted on the number of ranks that fits, for its user."""

from __future__ import annotations

from typing import TypedDict

from ejbd.manager.facts.jobworld import JobWorld

MOST_TOLD = 12


class ToldWidth(TypedDict):
    """A width, what the work that is left would take at it (seconds), and whether its speed was measured there."""

    ranks: int
    takes_s: float
    measured: bool


class ToldApplication(TypedDict):
    """By what profile it is run ("": by the contract of engine `application`), its widths, the widest first, and the
    ranks that it has now (None: none run). `not_again`: widths at which it did not go on. `least_by_memory`:
    with fewer ranks each would need more memory than a node has (1: no number is too small for that)."""

    profile: str
    widths: list[ToldWidth]
    now: int | None
    not_again: list[int]
    least_by_memory: int
    why: str


def told_application(world: JobWorld, left_s: float) -> ToldApplication | None:
    """None: of a job that keeps its ranks. `left_s`: the work that is left, in seconds at full width."""
    job = world.job
    profile = job.spec.get("profile") if job.engine == "profile" else None
    rungs = world.rungs
    if profile is None and rungs is None:
        return None
    epoch = world.live_epoch
    measured = world.measured_widths
    table = [] if rungs is None else list(zip(rungs.widths, rungs.stretches, strict=True))
    kept = set(range(len(table))) if len(table) <= MOST_TOLD else _spread(len(table))
    return {
        "profile": profile["name"] if profile else "",
        "widths": [
            {"ranks": width, "takes_s": round(left_s * stretch, 1), "measured": width in measured}
            for at, (width, stretch) in enumerate(table)
            if at in kept
        ],
        "now": epoch.size if epoch is not None else None,
        "not_again": sorted(world.broken_widths) if profile else [],
        "least_by_memory": world.least_by_memory,
        "why": world.no_profile,
    }


def _spread(length: int) -> set[int]:
    """Which of so many are told: the first, the last, and some between."""
    return {round(at * (length - 1) / (MOST_TOLD - 1)) for at in range(MOST_TOLD)}
