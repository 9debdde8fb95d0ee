"""`ejb sim reproduce guard --floor`: harm by EASY itself, where a log is given what is only good.

EASY is no monotone rule: where a job ends sooner, or the machine is larger, other jobs may end later. What is counted
here no rule under which elastic jobs end sooner can be expected to fall below.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.sim import progress
from ejbd.sim.metrics import Outcome, finite
from ejbd.sim.models import Model
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.run import Policy, run
from ejbd.sim.settings import Source, load
from ejbd.sim.workload import Workload
from ejbd.studies.paper.logs import logs_in
from ejbd.studies.paper.madeup import (
    BUSY,
    NARROWEST,
    PROMISED,
    SHARES,
    WORST,
    WORST_OTHERS,
    Harm,
    Trial,
    candidates_of,
    harm,
    made_up,
    pooled,
    seeds_told,
)
from ejbd.studies.paper.stopping import FEW_JOBS
from ejbd.studies.paper.turns import TIMES, Loser, figures_of

ONE_IN = 64  # processors: of so many there is one more
DRAWN = 0.01  # of a run time
BY_CHANCE = f"elastic jobs run up to {100 * DRAWN:g} % less, drawn"
HEAD = ("gift", "model", "seed", "processors", "load", "elastic share", "all", "elastic", "others")
COUNTED = (
    "gift", "cells", f"all above {PROMISED:g} % (worst)", f"above {WORST:g} %", f"others above {PROMISED:g} % (worst)",
    f"above {WORST_OTHERS:g} %", "logs with a cell above, all / others", "pooled, all / others",
)  # fmt: skip
LINES = ("log", "gift", "all", "elastic", "others", "users", "that lose much", "worst")


def _processors(workload: Workload, _elastic: Any) -> Workload:
    return replace(workload, processors=workload.processors + -(-workload.processors // ONE_IN))


def _less(share: float) -> Callable[[Workload, Any], Workload]:
    def shortened(workload: Workload, elastic: Any) -> Workload:
        run_s = np.where(elastic, np.maximum(1.0, np.ceil((1.0 - share) * workload.jobs.run)), workload.jobs.run)
        return replace(workload, jobs=workload.jobs._replace(run=run_s))

    return shortened


def _second(workload: Workload, elastic: Any) -> Workload:
    run_s = np.where(elastic, np.maximum(1.0, workload.jobs.run - 1.0), workload.jobs.run)
    return replace(workload, jobs=workload.jobs._replace(run=run_s))


def _requests(workload: Workload, _elastic: Any) -> Workload:
    return replace(workload, jobs=workload.jobs._replace(walltime=workload.jobs.run.copy()))


def _drawn(workload: Workload, elastic: Any, dice: np.random.Generator) -> Workload:
    """Elastic jobs end sooner by up to DRAWN of their run times, each by what is drawn for it."""
    less = np.floor((1.0 - DRAWN * dice.random(len(workload))) * workload.jobs.run)
    run_s = np.where(elastic, np.maximum(1.0, less), workload.jobs.run)
    return replace(workload, jobs=workload.jobs._replace(run=run_s))


GIFTS: dict[str, Callable[[Workload, Any], Workload]] = {
    f"one processor in {ONE_IN} more": _processors,
    "elastic jobs run 1 s less": _second,
    "elastic jobs run 10 % less": _less(0.1),
    "elastic jobs run 30 % less": _less(0.3),
    "requests are run times": _requests,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor(Harm):
    """A simulation of plain EASY with a gift."""

    gift: str


@dataclass(frozen=True, slots=True)
class Line:
    """A log of the paper with a gift: as a line of turns (:mod:`ejbd.studies.paper.turns`)."""

    log: str
    gift: str
    all_jobs: float
    elastic: float
    others: float | None  # None: all are elastic
    users: int
    lose_much: tuple[Loser, ...]
    worst_times: float


def reproduce_floor(traces: Path | None, out: Path, trial: Trial, *, limit: int | None = None) -> list[Path]:
    """Play the made-up logs of a trial, and those of the paper that are in `traces`: floor.md, floor.json, floor.csv,
    floor-logs.md, floor-logs.json and floor-logs.csv in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    if trial.seeds:
        names = [(model, seed) for seed in trial.seeds for model in Model]
        cells: list[Floor] = []
        for done, (model, seed) in enumerate(names):
            progress.tell(f"{model.value}, seed {seed}", done / len(names))
            cells += _play(model, seed, trial)
        paths += _write_cells(out, cells, trial)
    if traces is not None:
        paths += _write_lines(out, [line for log in _logs(traces, limit) for line in _lines(*log)], limit)
    return paths


def _play(model: Model, seed: int, trial: Trial) -> Iterator[Floor]:
    workload, its_load = made_up(model, seed, trial)
    again = len(GIFTS) * len(SHARES) * len(Model) * len(trial.seeds)
    before = run(workload, Policy.EASY, again=again).end - workload.jobs.submit
    for share in SHARES:
        elastic = candidates_of(workload, seed, share)
        for gift, give in GIFTS.items():
            after = run(give(workload, elastic), Policy.EASY, again=again).end - workload.jobs.submit
            yield Floor(
                model=model.value, seed=seed, processors=workload.processors, load=its_load, share=share, gift=gift,
                **harm(before, after, elastic),
            )  # fmt: skip
        for draw in range(len(trial.deltas) * len(trial.lambdas_s)):  # as often as the guard is played on the log
            given = _drawn(workload, elastic, np.random.default_rng((seed, draw)))
            after = run(given, Policy.EASY, again=again).end - workload.jobs.submit
            yield Floor(
                model=model.value, seed=seed, processors=workload.processors, load=its_load, share=share,
                gift=BY_CHANCE, **harm(before, after, elastic),
            )  # fmt: skip


def _logs(traces: Path, limit: int | None) -> Iterator[tuple[str, Workload]]:
    for known, path in logs_in(traces):
        yield known.name, load(Source(path, known.processors, limit=limit))


def _lines(name: str, workload: Workload) -> Iterator[Line]:
    elastic = workload.jobs.processors >= NARROWEST
    before = run(workload, Policy.EASY, again=len(GIFTS))
    for gift, give in GIFTS.items():
        progress.tell(f"{name}, {gift}", 0.0)
        after: Outcome = run(give(workload, elastic), Policy.EASY, again=len(GIFTS))
        figures = figures_of(workload, before, replace(after, elastic=elastic.astype(np.int64)))
        yield Line(name, gift, figures[0], figures[1], finite(figures[2]), *figures[3:])


def counts(cells: Sequence[Harm]) -> list[str]:
    """Of some cells: in how many all jobs and the others are harmed, in how many much, in how many logs, and pooled."""
    told, logs = [str(len(cells))], []
    for limit, figures in (
        (WORST, [(cell.all_jobs, cell) for cell in cells]),
        (WORST_OTHERS, [(cell.others, cell) for cell in cells]),
    ):
        above = [cell for figure, cell in figures if figure > PROMISED]
        share = 100 * len(above) / len(cells)
        told.append(f"{len(above)} = {share:.1f} % ({max(figure for figure, _ in figures):+.1f} %)")
        told.append(str(sum(figure > limit for figure, _ in figures)))
        logs.append(len({(cell.model, cell.seed) for cell in above}))
    every = len({(cell.model, cell.seed) for cell in cells})
    return [*told, f"{logs[0]} / {logs[1]} of {every}", pooled(cells)]


def _tables(cells: Sequence[Floor]) -> dict[str, list[list[str]]]:
    """Rows of counts by what is told above them."""
    kinds: dict[str, Callable[[Floor], bool]] = {
        "All of them": lambda _cell: True,
        f"Loads below {BUSY:g}": lambda cell: cell.load < BUSY,
        f"Loads of {BUSY:g} and more": lambda cell: cell.load >= BUSY,
    }
    kinds |= {f"Model {model.value}": lambda cell, name=model.value: cell.model == name for model in Model}  # type: ignore[misc]
    tables = {}
    for what, belongs in kinds.items():
        chosen = [cell for cell in cells if belongs(cell)]
        if chosen:
            tables[what] = [
                [gift, *counts([cell for cell in chosen if cell.gift == gift])] for gift in (*GIFTS, BY_CHANCE)
            ]
    return tables


def _write_cells(out: Path, cells: Sequence[Floor], trial: Trial) -> list[Path]:
    worst = sorted(cells, key=lambda cell: -max(cell.all_jobs, cell.others))
    rows = [
        (cell.gift, cell.model, str(cell.seed), str(cell.processors), f"{cell.load:g}", f"{cell.share:g}",
         f"{cell.all_jobs:+.1f} %", "-" if cell.elastic_percent is None else f"{cell.elastic_percent:+.1f} %",
         f"{cell.others:+.1f} %")
        for cell in worst
    ]  # fmt: skip
    tables = "\n".join(f"{what}:\n\n{markdown_table(COUNTED, table)}" for what, table in _tables(cells).items())
    text = (
        "# The floor: plain EASY with something that is only good, against plain EASY\n\n"
        f"Made-up logs of {len(Model)} models, {trial.jobs} jobs each, seeds {seeds_told(trial.seeds)}.\n\n{tables}"
    )
    paths = [out / f"floor.{end}" for end in ("md", "json", "csv")]
    paths[0].write_text(text, encoding="utf-8")
    document = {"seeds": trial.seeds, "cells": [cell.to_json() for cell in cells]}
    paths[1].write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
    write_csv(paths[2], HEAD, rows)
    return paths


def _write_lines(out: Path, lines: Sequence[Line], limit: int | None) -> list[Path]:
    rows = [
        [one.log, one.gift, f"{one.all_jobs:+.1f} %", f"{one.elastic:+.1f} %",
         "-" if one.others is None else f"{one.others:+.1f} %", str(one.users), str(len(one.lose_much)),
         f"{one.worst_times:.1f} times"]
        for one in lines
    ]  # fmt: skip
    some = f"Only the first {limit} rows of each log were played. " if limit else ""
    text = (
        f"# The floor on the logs of the paper\n\n{some}Users with {FEW_JOBS} jobs and more; one loses much above "
        f"{TIMES:g} times its mean turnaround under EASY.\n\n{markdown_table(LINES, rows)}"
    )
    paths = [out / f"floor-logs.{end}" for end in ("md", "json", "csv")]
    paths[0].write_text(text, encoding="utf-8")
    document = {"rows_of_each_log": limit, "lines": [asdict(one) for one in lines]}
    paths[1].write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    write_csv(paths[2], LINES, rows)
    return paths
