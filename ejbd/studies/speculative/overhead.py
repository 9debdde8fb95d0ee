"""`ejb sim reproduce overhead`: what the paper's algorithm takes beyond the jobs' work, by the run time that it knows.

One elastic job a simulation (Tables 3 and 4 of Liu & Weissman). The batch system is asked for the user's request in any
case; what changes is by which time a job is planned and its moves are weighed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.weighing import AT, BY_MEAN, POINTS
from ejbd.core.speculation.empirical import Empirical
from ejbd.sim import progress
from ejbd.sim.metrics import Outcome
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.run import Policy, run
from ejbd.sim.settings import Source, load
from ejbd.sim.targets import run_targets
from ejbd.sim.workload import RowRule, Workload
from ejbd.sim.world import FloatArray, Learned
from ejbd.studies.paper import printed
from ejbd.studies.paper.logs import logs_in
from ejbd.studies.speculative.learning import QUANTUM_S, Asked, Group, Laws

PLANNED = 0.95  # of the runs are to be over by what a job is planned with, as live
SHARES = (0.5, 0.25, 0.1, 0.05)  # of the runs that got so far had no more left than what moves are weighed by
_MANY = 100  # simulations are to come, so that compiling is worth it unless the logs are small
HEAD = (
    "log", "planned by", "moves weighed by", "turnaround against EASY", "overhead", "beside the request",
    "overhead of all work", "moves a job", "law known of", "outlived their plan",
)  # fmt: skip


class Laid(NamedTuple):
    """What was known of each job when it was submitted. `law`: whether anything was; `quantile_s`: by which 95 % of
    such runs are over (infinite: not known), of runs alike only or of all that tell of it; `points` likewise."""

    law: Any  # flags
    quantile_s: FloatArray
    points: FloatArray


def groups_of(asked: Asked) -> tuple[tuple[Group, float], ...]:
    """The groups of runs that tell of a job, the nearest first, with the seconds that their figures are a part of.

    Runs of the user as wide that asked for as much; that asked for as much; all of the user's; those of all users. Of
    the last two it is which part of their request they took.
    """
    user, processors, requested_s = asked
    return (
        ((0.0, user, processors, requested_s), 1.0), ((1.0, user, requested_s), 1.0), ((2.0, user), requested_s),
        ((3.0,), requested_s),
    )  # fmt: skip


def learn(workload: Workload, easy: Outcome, *, alike: bool) -> Laid:
    """What had ended when each job was submitted tells of it, and nothing else. `alike`: only runs as wide of the same
    user that asked for as much; otherwise also others, where these are too few."""
    jobs, laws = workload.jobs, Laws()
    count = len(workload)
    users = workload.users if workload.users is not None else np.full(count, -1)
    asked = list(map(Asked, users.tolist(), jobs.processors.tolist(), jobs.walltime.tolist()))
    levels = 1 if alike else None
    ended, runs, done = np.argsort(easy.end, kind="stable").tolist(), jobs.run.tolist(), 0
    laid = Laid(np.zeros(count, dtype=bool), np.full(count, math.inf), np.repeat(jobs.walltime[:, None], POINTS, 1))
    drawn: dict[Group, tuple[Empirical, FloatArray]] = {}
    for job, submit in enumerate(jobs.submit.tolist()):
        while done < count and easy.end[ended[done]] <= submit:
            over = ended[done]
            for group, part_of in groups_of(asked[over])[:levels]:
                laws.ended(group, runs[over] / part_of)
            done += 1
        for group, part_of in groups_of(asked[job])[:levels]:
            law = laws.law(group)
            if law is None:
                continue
            if group not in drawn or drawn[group][0] is not law:
                drawn[group] = law, np.array([law.quantile(share) for share in (PLANNED, *AT)])
            found = drawn[group][1] * part_of
            laid.law[job], laid.quantile_s[job] = True, found[0]
            laid.points[job] = np.minimum(found[1:], asked[job].requested_s)
            break
    return laid


@dataclass
class Knowledge:
    """A log, played under EASY, and what decisions about its jobs could go by."""

    workload: Workload
    easy: Outcome

    @cached_property
    def alike(self) -> Laid:
        return learn(self.workload, self.easy, alike=True)

    @cached_property
    def every(self) -> Laid:
        return learn(self.workload, self.easy, alike=False)

    def true(self, *, planned: bool) -> Learned:
        """The true run time. `planned` too, or only moves are weighed by it."""
        jobs = self.workload.jobs
        return Learned(jobs.run if planned else jobs.walltime, jobs.run[:, None], BY_MEAN)

    def learned(self, planned: Laid | None, weighed: Laid | None, share: float = BY_MEAN) -> Learned:
        """Planned with the quantile of one law, and the time in which a job that outlives it is saved (None: with the
        request); moves weighed by another (None: by what is planned with)."""
        until = self.workload.jobs.walltime
        if planned is not None:
            lambda_s = BundlingParameters().lambda_s
            until = np.minimum(until, np.ceil((planned.quantile_s + lambda_s) / QUANTUM_S) * QUANTUM_S)
        return Learned(until, until[:, None] if weighed is None else weighed.points, share)


Way = Callable[[Knowledge], Learned | None]


def _weighed_by(share: float, *, every: bool, planned: bool) -> Way:
    return lambda k: k.learned(k.alike if planned else None, k.every if every else k.alike, share)


def _ways() -> dict[tuple[str, str], Way]:
    """By what a job is planned with, and what its moves are weighed by."""
    request, quantile, true, alike, every = (
        "request",
        f"{PLANNED:g} quantile",
        "true run time",
        "runs alike",
        "every run",
    )
    ways: dict[tuple[str, str], Way] = {
        (request, request): lambda k: None,
        (request, true): lambda k: k.true(planned=False),
        (true, true): lambda k: k.true(planned=True),
        (f"{quantile}, {alike}", "the same"): lambda k: k.learned(k.alike, None),
        (f"{quantile}, {alike}", f"mean, {alike}"): lambda k: k.learned(k.alike, k.alike),
        (f"{quantile}, {every}", "the same"): lambda k: k.learned(k.every, None),
        (f"{quantile}, {every}", f"mean, {every}"): lambda k: k.learned(k.every, k.every),
        (request, f"mean, {alike}"): lambda k: k.learned(None, k.alike),
        (request, f"mean, {every}"): lambda k: k.learned(None, k.every),
    }
    for share in SHARES:
        by = f"{share:g} quantile"
        ways[request, f"{by}, {alike}"] = _weighed_by(share, every=False, planned=False)
        ways[request, f"{by}, {every}"] = _weighed_by(share, every=True, planned=False)
    for share in SHARES[-2:]:
        weighed = f"{share:g} quantile, {every}"
        ways[f"{quantile}, {alike}", weighed] = _weighed_by(share, every=True, planned=True)
    return ways


def reproduce_overhead(traces: Path, out: Path, *, limit: int | None = None) -> list[Path]:
    """Play every log in every way and write overhead.md, overhead.json and overhead.csv to `out`; the files.

    `limit`: the first rows of each log only. Raises EjbError where none of the logs is in `traces`.
    """
    logs, ways = logs_in(traces), _ways()
    rows: list[dict[str, Any]] = []
    for at, (known, path) in enumerate(logs):
        workload = load(Source(path, known.processors, RowRule.PYSS, limit))
        known_of = Knowledge(workload, run(workload, Policy.EASY, again=_MANY))
        for number, ((planned, weighed), way) in enumerate(ways.items()):
            share = (at + number / len(ways)) / len(logs)
            what = f"{known.name}, planned by {planned}, weighed by {weighed}"
            with progress.part(what, share, share + 1 / len(ways) / len(logs)):
                told = play(workload, known_of.easy, way(known_of))
                rows.append({"log": known.name, "planned_by": planned, "weighed_by": weighed} | told)
    return _write(out, rows, limit)


def play(workload: Workload, easy: Outcome, learned: Learned | None) -> dict[str, Any]:
    """Every target of a log as the one elastic job, decided on by what was learned; turnaround and overhead in %."""
    jobs = workload.jobs
    known = replace(workload, jobs=jobs._replace(learned=learned))
    found = run_targets(known, baseline=easy, again=_MANY)
    told, at = found.summary(), found.targets
    work, used = float((jobs.processors * jobs.run)[at].sum()), float(found.outcome.used[at].sum())
    law = outlived = 0.0
    if learned is not None and at.size:
        law = float(np.mean((learned.points != jobs.walltime[:, None]).any(axis=1)[at]))
        outlived = float(np.mean(((learned.planned < jobs.walltime) & (jobs.run > learned.planned))[at]))
    return {
        "targets": told["targets"],
        "turnaround_change_percent": told["turnaround_change_percent"],
        "overhead_percent": told["overhead_percent"],
        "overhead_of_all_percent": 100.0 * (used - work) / work if work else 0.0,
        "moves": told["mean_migrations"],
        "subjobs": told["mean_subjobs"],
        "law_share": law,
        "outlived_share": outlived,
    }


def _write(out: Path, rows: Sequence[dict[str, Any]], limit: int | None) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"overhead.{end}" for end in ("md", "json", "csv")]
    page, document, table = paths
    text = json.dumps({"rows_of_each_log": limit, "plays": list(rows)}, indent=1, allow_nan=False)
    document.write_text(text + "\n", encoding="utf-8")
    lines = [_line(row, rows) for row in rows]
    write_csv(table, HEAD, lines)
    some = f"Only the first {limit} rows of each log were played.\n\n" if limit else ""
    told = ", ".join(f"{name} {values[3]:g} %" for name, values in printed.TABLE_4.items())
    note = (
        "One elastic job a simulation, the paper's algorithm, over the paper's targets. Overhead: the mean over the "
        f"jobs of (processor-seconds held - P r) / (P r); the paper's own, by requests: {told}. Overhead of all work: "
        "the same of their sums, where long jobs count as what they are."
    )
    page.write_text(f"# Overhead by what is known of run times\n\n{some}{note}\n\n{markdown_table(HEAD, lines)}",
                    encoding="utf-8")  # fmt: skip
    return paths


def _line(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    base = next(one["overhead_percent"] for one in rows if one["log"] == row["log"])
    turnaround = row["turnaround_change_percent"]
    return [
        row["log"], row["planned_by"], row["weighed_by"], "-" if turnaround is None else f"{turnaround:+.2f} %",
        f"{row['overhead_percent']:.2f} %", f"{row['overhead_percent'] / base:.2f}" if base else "-",
        f"{row['overhead_of_all_percent']:.2f} %", f"{row['moves']:.2f}", f"{100 * row['law_share']:.0f} %",
        f"{100 * row['outlived_share']:.1f} %",
    ]  # fmt: skip
