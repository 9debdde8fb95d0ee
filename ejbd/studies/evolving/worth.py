"""`ejb sim run LOG --evolving-share S`: what evolving jobs are worth on a log, to themselves and to all others.

The same jobs are played in four ways: rigid under EASY, which bundling is set against; elastic under bundling; rigid
under conservative backfilling, which evolving jobs are set against; and evolving. Only the last knows their profiles:
in the others a job holds its peak for all of its time, and bundling does all of that work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ejbd.core.evolving.profiles import Profile
from ejbd.errors import Code, EjbError
from ejbd.sim import progress
from ejbd.sim.evolving import run_evolving
from ejbd.sim.metrics import Outcome, change, finite, makespan, means, paper_trim, utilization
from ejbd.sim.report import rows_told
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.settings import Setting, Source, load
from ejbd.sim.workload import Workload, scaled_arrivals
from ejbd.studies.evolving.courses import courses

LIMITS = {"noX": (1.0, False), "2X+c": (2.0, True), "infX+c": (math.inf, True)}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to play the log. `against`: the way that it is set against."""

    name: str
    against: str
    outcome: Outcome


def worth(source: Source, setting: Setting, share: float) -> tuple[Workload, dict[str, Any]]:
    """Play a log in all ways; what came of it as plain values. `setting` says how bundling plays, and which jobs may
    be chosen; all play what happens at one time before one pass. Raises EjbError as loading and playing do."""
    if setting.policy is not Policy.EJB or not setting.is_kernel:
        what = "evolving jobs are set beside EASY, conservative backfilling and bundling, not beside a policy of choice"
        raise EjbError(Code.INVALID, what, where="--policy", hint="leave it out")
    workload = load(source)
    if setting.arrivals != 1.0:
        workload = scaled_arrivals(workload, setting.arrivals)
    chosen = replace(setting.choice, share=share).flags(workload)
    profiles = courses(workload, chosen, setting.choice.seed)
    ways = play_all(workload, setting, chosen, profiles)
    at = {way.name: way for way in ways}
    kept = paper_trim(workload.jobs, at["rigid, conservative"].outcome) if setting.trimmed else chosen | True
    rows = []
    for way in ways:
        row: dict[str, Any] = {"way": way.name, "against": way.against}
        for name, flags in (("evolving", kept & chosen), ("others", kept & ~chosen), ("all", kept)):
            told = means(workload.jobs, way.outcome, flags)
            base = means(workload.jobs, at[way.against].outcome, flags)
            row[name] = told.to_json() | {
                "turnaround_change_percent": finite(change(base.mean_turnaround_s, told.mean_turnaround_s))
            }
        row["makespan_s"] = makespan(workload.jobs, way.outcome)
        row["utilization"] = utilization(workload.jobs, way.outcome, workload.processors)
        row["processor_seconds"] = float(way.outcome.used.sum())
        rows.append(row)
    needed = sum(_runs_area(profile, float(run)) for profile, run in zip(profiles, workload.jobs.run, strict=True))
    peak = float((workload.jobs.processors * workload.jobs.run)[chosen].sum())
    report = {
        "trace": workload.name,
        "processors": workload.processors,
        "evolving_share": share,
        "evolving_jobs": int(chosen.sum()),
        "evolving_processor_seconds": needed,
        "their_peak_processor_seconds": peak,
        "ways": rows,
        "rows": rows_told(workload),
    }
    return workload, report


def play_all(workload: Workload, setting: Setting, chosen: Any, profiles: list[Profile | None]) -> list[Way]:
    parts = 2 + 1 + len(LIMITS)

    def part(number: int, what: str) -> Any:
        return progress.part(what, number / parts, (number + 1) / parts)

    with part(0, "EASY"):
        easy = run(workload, Policy.EASY, ties=Ties.BATCH)
    with part(1, "bundling"):
        bundling = run(
            workload, Policy.EJB, ties=Ties.BATCH, parameters=setting.parameters, candidates=chosen,
            keep_placeholder=setting.keep_placeholder,
        )  # fmt: skip
    with part(2, "conservative"):
        rigid = run_evolving(workload, [None] * len(workload))
    ways = [
        Way("rigid, EASY", "rigid, EASY", easy),
        Way("bundling", "rigid, EASY", bundling),
        Way("rigid, conservative", "rigid, conservative", rigid),
    ]
    for number, (name, (limit, compact)) in enumerate(LIMITS.items(), 3):
        with part(number, f"evolving, {name}"):
            outcome = run_evolving(workload, profiles, limit=limit, compact=compact)
        ways.append(Way(f"evolving, {name}", "rigid, conservative", outcome))
    return ways


def _runs_area(profile: Profile | None, run_s: float) -> float:
    """Processor-seconds of a profile that ends with its job's run."""
    if profile is None:
        return 0.0
    area, left = 0.0, run_s
    for step in profile.steps:
        lasts = min(left, step.duration_s)
        area += lasts * step.processors
        left -= lasts
    return area
