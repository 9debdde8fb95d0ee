"""`ejb sim reproduce guard --made N`: the guard against EASY on made-up logs of six models, the worst cells first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.sim import progress
from ejbd.sim.metrics import change
from ejbd.sim.models import Model, generate
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.run import Policy, run
from ejbd.sim.workload import workload_of

DELTAS = (1.0, 1.1, 1.3, 1.5, 1.6, 2.0, 3.0)
LAMBDAS_S = (0.0, 120.0, 600.0, 1800.0, 7200.0)
SHARES = (1.0, 0.2)  # of the jobs of 8 processors and more that are elastic
JOBS = 1000
SHAPES = ((64, 0.95, 10.0), (32, 0.7, 5.0), (128, 1.0, 2.0), (256, 0.85, 10.0), (64, 0.6, 3.0), (32, 0.95, 5.0),
          (1024, 0.9, 5.0))  # processors, load, most that is requested of a run  # fmt: skip
TUNED_SEED, JUDGED_SEED = 500, 900  # the first of the logs that constants were chosen on, and of those they are held on
NARROWEST = 8
PROMISED, WORST, WORST_OTHERS = 1.0, 3.0, 5.0  # per cent
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation: sums of turnarounds under EASY and with EJB of all jobs, and of those that did not become
    elastic, in seconds; and the change of the mean of those that did, in per cent (None: there is none)."""

    model: str
    seed: int
    processors: int
    load: float
    share: float
    delta: float
    lambda_s: float
    all_s: tuple[float, float]
    others_s: tuple[float, float]
    elastic_percent: float | None

    @property
    def all_jobs(self) -> float:
        """Change of the mean turnaround of all jobs in per cent."""
        return change(*self.all_s)

    @property
    def others(self) -> float:
        """The same of those that did not become elastic; 0 where there are none."""
        return change(*self.others_s) if self.others_s[0] else 0.0

    @property
    def where(self) -> str:
        which = "all elastic" if self.share == 1.0 else f"{100 * self.share:g} % elastic"
        log = f"{self.model}, seed {self.seed}, {self.processors} processors, load {self.load:g}"
        return f"{log}, {which}, Delta {self.delta:g}, lambda {self.lambda_s:g} s"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


def reproduce_made(out: Path, logs: int, *, tuned: bool = False, jobs: int = JOBS, turns: bool = False) -> list[Path]:
    """Play so many logs of each model in every cell; write made.md, made.json and made.csv (made-with-turns.md and
    so on) to `out`.

    What `out` has of a log is not played again. `tuned`: the logs on which the constants of the guard were chosen,
    rather than others of the same models. `turns`: J0s stay until their turn where others wait beyond theirs.
    """
    kept = out / ("made-with-turns" if turns else "made")
    kept.mkdir(parents=True, exist_ok=True)
    cells: list[Cell] = []
    names = [(model, number) for number in range(logs) for model in Model]
    for done, (model, number) in enumerate(names):
        progress.tell(f"{model.value}, log {number + 1} of {logs}", done / len(names))
        seed = (TUNED_SEED if tuned else JUDGED_SEED) + number
        path = kept / f"{model.value}-{seed}-{jobs}.json"
        if not path.exists():
            cells_left = (len(names) - done) * len(SHARES) * len(DELTAS) * len(LAMBDAS_S)
            found = [cell.to_json() for cell in _play(model, number, seed, jobs, cells_left, turns)]
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(found), encoding="utf-8")
            fresh.replace(path)
        cells += [_cell(row) for row in json.loads(path.read_text(encoding="utf-8"))]
    return _write(out, cells, logs, tuned, jobs, turns)


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(**{**row, "all_s": tuple(row["all_s"]), "others_s": tuple(row["others_s"])})


def _play(model: Model, number: int, seed: int, jobs: int, again: int, turns: bool) -> Iterator[Cell]:
    processors, load, most = SHAPES[number % len(SHAPES)]
    log = generate(model, jobs=jobs, processors=processors, seed=seed, load=load, overestimate=most)
    workload = workload_of(log, model.value, processors=processors)
    wide = workload.jobs.processors >= NARROWEST
    easy = run(workload, Policy.EASY).end - workload.jobs.submit
    for share in SHARES:
        candidates = wide & (np.random.default_rng(seed).random(jobs) < share)
        for delta in DELTAS:
            for lambda_s in LAMBDAS_S:
                given = BundlingParameters(
                    suspend=True,
                    order=Order.LEAST_WORK,
                    guard=Guard.ON,
                    delta=delta,
                    lambda_s=lambda_s,
                    j0_in_turn=turns,
                )
                outcome = run(workload, Policy.EJB, parameters=given, candidates=candidates, again=again)
                after, elastic = outcome.end - workload.jobs.submit, outcome.elastic != 0
                yield Cell(
                    model.value, seed, processors, load, share, delta, lambda_s,
                    (float(easy.sum()), float(after.sum())),
                    (float(easy[~elastic].sum()), float(after[~elastic].sum())),
                    change(float(easy[elastic].sum()), float(after[elastic].sum())) if elastic.any() else None,
                )  # fmt: skip


def verdict(cells: Sequence[Cell]) -> str:
    """How often the promise is broken, and by how much at worst."""
    told = []
    for jobs, figure, limit in (
        ("all jobs", [cell.all_jobs for cell in cells], WORST),
        ("those that are not elastic", [cell.others for cell in cells], WORST_OTHERS),
    ):
        broken = sum(one > PROMISED for one in figure)
        worst = max(zip(figure, cells, strict=True), key=lambda one: one[0])
        told.append(
            f"The mean turnaround of {jobs} is more than {PROMISED:g} % above EASY's in {broken} of {len(cells)} cells "
            f"({100 * broken / len(cells):.1f} %; more than {limit:g} % in {sum(one > limit for one in figure)}), at "
            f"worst {worst[0]:+.1f} % ({worst[1].where})."
        )
    return " ".join(told)


def _pooled(cells: Sequence[Cell]) -> str:
    """`-12.3 / -4.5`: all jobs of these cells together, and those that are not elastic."""
    sums = [sum(one) for one in zip(*[(*cell.all_s, *cell.others_s) for cell in cells], strict=True)]
    return f"{change(sums[0], sums[1]):+.1f} / {change(sums[2], sums[3]):+.1f}"


def _write(out: Path, cells: Sequence[Cell], logs: int, tuned: bool, jobs: int, turns: bool) -> list[Path]:
    worst = sorted(cells, key=lambda cell: -max(cell.all_jobs, cell.others))
    head = ("model", "seed", "processors", "load", "elastic share", "Delta", "lambda (s)", "all", "elastic", "others")
    rows = [
        (cell.model, str(cell.seed), str(cell.processors), f"{cell.load:g}", f"{cell.share:g}", f"{cell.delta:g}",
         f"{cell.lambda_s:g}", f"{cell.all_jobs:+.1f} %",
         "-" if cell.elastic_percent is None else f"{cell.elastic_percent:+.1f} %", f"{cell.others:+.1f} %")
        for cell in worst
    ]  # fmt: skip
    pooled = [
        [model.value, f"{lambda_s:g}", *(
            _pooled([
                cell for cell in cells
                if (cell.model, cell.lambda_s, cell.delta) == (model.value, lambda_s, delta)
            ])
            for delta in DELTAS
        )]
        for model in Model for lambda_s in LAMBDAS_S
    ]  # fmt: skip
    seeds = f"seeds {cells[0].seed} to {max(cell.seed for cell in cells)}"
    which = "on which its constants were chosen" if tuned else "which the choice of its constants did not see"
    broken = [f"| {model.value} | {_share(cells, model)} |" for model in Model]
    name = "made-with-turns" if turns else "made"
    paths = [out / f"{name}.{end}" for end in ("md", "json", "csv")]
    text = (
        f"# The guard against EASY on made-up logs\n\n{verdict(cells)}\n\n"
        f"{logs} logs of each of {len(Model)} models, {jobs} jobs each, {seeds}, {which}."
        f"{' J0s stay until their turn while another job waits beyond its own.' if turns else ''}\n\n"
        f"| model | cells above {PROMISED:g} %: all, not elastic |\n|---|--:|\n" + "\n".join(broken) + "\n\n"
        f"The worst cells, by the jobs that they harm most:\n\n{markdown_table(head, rows[:SHOWN])}\n\n"
        "All cells of a model pooled, change of the mean turnaround in per cent, all jobs / those that are not elastic:"
        f"\n\n{markdown_table(('model', 'lambda (s)', *(f'Delta {one:g}' for one in DELTAS)), pooled)}"
    )
    paths[0].write_text(text, encoding="utf-8")
    document = {"verdict": verdict(cells), "tuned": tuned, "turns": turns, "cells": [cell.to_json() for cell in cells]}
    paths[1].write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
    write_csv(paths[2], head, rows)
    return paths


def _share(cells: Sequence[Cell], model: Model) -> str:
    here = [cell for cell in cells if cell.model == model.value]
    figures = ([cell.all_jobs for cell in here], [cell.others for cell in here])
    return ", ".join(f"{100 * sum(one > PROMISED for one in each) / len(here):.1f} %" for each in figures)
