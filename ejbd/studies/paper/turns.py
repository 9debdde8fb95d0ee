"""`ejb sim reproduce guard --turns --traces DIR`: the paper's logs with and without turns, and users that lose much."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.sim.metrics import Outcome, change, paper_trim
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.settings import Source, load
from ejbd.sim.workload import Workload
from ejbd.studies.paper.logs import logs_in
from ejbd.studies.paper.runs import EASY, EJB, PaperRuns
from ejbd.studies.paper.stopping import FEW_JOBS, Stopping

PLACES = ((1.0, 120.0), (1.0, 600.0), (1.5, 120.0))  # Delta, lambda in seconds
OFF, ON, STOPS, STOPS_LATE = "off", "on", "off, stops", "off, stops for late"  # of turns, and a rule that stops
RULES = (OFF, ON, STOPS, STOPS_LATE)
LOSERS = ("log", "Delta", "lambda (s)", "turns", "user", "jobs", "EASY (s)", "EJB (s)", "times")
TIMES, MORE_S = (
    1.5,
    600.0,
)  # a user loses much above so many times EASY's mean, and so much above it


@dataclass(frozen=True, slots=True)
class Loser:
    """A user that loses much: its number in the log, its jobs, and their mean turnarounds in seconds."""

    user: int
    jobs: int
    easy_s: float
    ejb_s: float

    @property
    def times(self) -> float:
        return self.ejb_s / self.easy_s


@dataclass(frozen=True, slots=True)
class Line:
    """One log at one place: changes of the mean turnaround against EASY in per cent, and its users with some jobs.

    `stopped`: for which share of the time nothing was elastic (:mod:`ejbd.studies.paper.stopping`).
    """

    log: str
    delta: float
    lambda_s: float
    turns: str
    all_jobs: float
    elastic: float
    others: float
    users: int
    lose_much: tuple[Loser, ...]  # the worst first
    worst_times: float
    stopped: float = 0.0


def reproduce_turns(traces: Path, out: Path, *, limit: int | None = None) -> list[Path]:
    """Play the logs that are in `traces` and write turns.md, turns.json and turns.csv to `out`."""
    loads = {known.name: load(Source(path, known.processors, limit=limit)) for known, path in logs_in(traces)}
    jobs = sum(len(one) for one in loads.values())
    runs = PaperRuns(jobs * (EASY + len(RULES) * len(PLACES) * EJB))
    lines = []
    for name, workload in loads.items():
        easy = runs.easy(name, workload)
        for delta, lambda_s in PLACES:
            for rule in RULES if workload.users is not None else (OFF, ON):
                given = BundlingParameters(
                    suspend=True,
                    order=Order.LEAST_WORK,
                    guard=Guard.ON,
                    delta=delta,
                    lambda_s=lambda_s,
                    j0_in_turn=rule == ON,
                )
                stopping = None
                if rule in (STOPS, STOPS_LATE):
                    stopping = Stopping(workload, easy, only_waiting=rule == STOPS_LATE)
                ejb = runs.ejb(f"{name}, Delta {delta:g}, lambda {lambda_s:g} s", workload, 8, given, stopping)
                stopped = 0.0 if stopping is None else stopping.stopped
                lines.append(Line(name, delta, lambda_s, rule, *figures_of(workload, easy, ejb), stopped))
    return write(out, lines, limit)


def figures_of(
    workload: Workload, easy: Outcome, ejb: Outcome
) -> tuple[float, float, float, int, tuple[Loser, ...], float]:
    """Of what both runs count: the changes, how many users there are, those that lose much, and the worst one."""
    submit = workload.jobs.submit
    kept, elastic = paper_trim(workload.jobs, easy) & paper_trim(workload.jobs, ejb), ejb.elastic != 0
    before, after = easy.end - submit, ejb.end - submit
    changes = [
        change(float(before[which].sum()), float(after[which].sum()))
        for which in (kept, kept & elastic, kept & ~elastic)
    ]
    users = _users(workload, kept, before, after)
    later = [one for one in users if one.easy_s > 0 and one.ejb_s > one.easy_s + MORE_S]
    later.sort(key=lambda one: -one.times)
    lose = tuple(one for one in later if one.times > TIMES)
    return changes[0], changes[1], changes[2], len(users), lose, later[0].times if later else 1.0


def _users(workload: Workload, kept: Any, before: Any, after: Any) -> list[Loser]:
    if workload.users is None:
        return []
    found = []
    for number in np.unique(workload.users[kept]).tolist():
        of = kept & (workload.users == number)
        jobs = int(np.count_nonzero(of))
        if number >= 0 and jobs >= FEW_JOBS:
            found.append(Loser(number, jobs, float(before[of].mean()), float(after[of].mean())))
    return found


def write(out: Path, lines: list[Line], limit: int | None) -> list[Path]:
    """turns.md, turns.json and turns.csv; the page first."""
    out.mkdir(parents=True, exist_ok=True)
    head = ["log", "Delta", "lambda (s)", "turns", "all", "elastic", "others", "users", "that lose much", "worst",
            "stopped"]  # fmt: skip
    rows = [
        [one.log, f"{one.delta:g}", f"{one.lambda_s:g}", one.turns, f"{one.all_jobs:+.1f} %",
         f"{one.elastic:+.1f} %", f"{one.others:+.1f} %", str(one.users), str(len(one.lose_much)),
         f"{one.worst_times:.1f} times", f"{100 * one.stopped:.0f} %"]
        for one in lines
    ]  # fmt: skip
    losers = [
        [*row[:4], str(user.user), str(user.jobs), f"{user.easy_s:.0f}", f"{user.ejb_s:.0f}", f"{user.times:.1f}"]
        for one, row in zip(lines, rows, strict=True) for user in one.lose_much
    ]  # fmt: skip
    paths = [out / f"turns.{end}" for end in ("md", "json", "csv")]
    some = f"Only the first {limit} rows of each log were simulated. " if limit else ""
    text = (
        f"# Turns on the logs of the paper\n\n{some}Change of the mean turnaround against EASY. Users with {FEW_JOBS} "
        f"jobs and more; one loses much where its mean is above {TIMES:g} times EASY's, and {MORE_S / 60:g} minutes "
        f"above it. Worst: of those that are {MORE_S / 60:g} minutes above it.\n\n{markdown_table(head, rows)}\n"
        f"Users that lose much, by their numbers in the log:\n\n{markdown_table(LOSERS, losers)}"
    )
    paths[0].write_text(text, encoding="utf-8")
    document = {"rows_of_each_log": limit, "lines": [asdict(one) for one in lines]}
    paths[1].write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    write_csv(paths[2], head, rows)
    return paths
