"""`ejb sim reproduce guard --made N`: the guard against EASY on made-up logs of six models, the worst cells first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.sim import progress
from ejbd.sim.metrics import change
from ejbd.sim.models import Model, generate
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.run import Policy, run
from ejbd.sim.workload import Workload, workload_of

DELTAS = (1.0, 1.1, 1.3, 1.5, 1.6, 2.0, 3.0)
LAMBDAS_S = (0.0, 120.0, 600.0, 1800.0, 7200.0)
QUICK_DELTAS, QUICK_LAMBDAS_S = (1.0, 1.3, 1.5, 2.0), (0.0, 120.0, 600.0, 1800.0)
SHARES = (1.0, 0.2)  # of the jobs of 8 processors and more that are elastic
JOBS = 1000
SHAPES = ((64, 0.95, 10.0), (32, 0.7, 5.0), (128, 1.0, 2.0), (256, 0.85, 10.0), (64, 0.6, 3.0), (32, 0.95, 5.0),
          (1024, 0.9, 5.0))  # processors, load, most that is requested of a run  # fmt: skip
TUNED_SEED, JUDGED_SEED = 500, 900  # the first of the logs that constants were chosen on, and of those they are held on
NARROWEST = 8
PROMISED, WORST, WORST_OTHERS = 1.0, 3.0, 5.0  # per cent
BUSY = 0.85  # a load
SHOWN = 20
HEAD = ("model", "seed", "processors", "load", "elastic share", "Delta", "lambda (s)", "all", "elastic", "others")
COUNTED = (
    "model", "cells", f"all above {PROMISED:g} % (worst)", "elastic", "others", "pooled, all / others",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """One simulation: sums of turnarounds under EASY and in it of all jobs, and of those that did not become elastic,
    in seconds; and the change of the mean of those that did, in per cent (None: there is none)."""

    model: str
    seed: int
    processors: int
    load: float
    share: float
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
        return f"{log}, {which}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Harm):
    """A simulation of EJB with the guard."""

    delta: float
    lambda_s: float

    @property
    def where(self) -> str:
        return f"{Harm.where.__get__(self)}, Delta {self.delta:g}, lambda {self.lambda_s:g} s"


@dataclass(frozen=True, slots=True)
class Trial:
    """What is played: logs of these seeds, of each model, in all cells or a few (`quick`), with `turns` or without."""

    seeds: tuple[int, ...]
    jobs: int = JOBS
    turns: bool = False
    quick: bool = False

    @property
    def deltas(self) -> tuple[float, ...]:
        return QUICK_DELTAS if self.quick else DELTAS

    @property
    def lambdas_s(self) -> tuple[float, ...]:
        return QUICK_LAMBDAS_S if self.quick else LAMBDAS_S

    @property
    def name(self) -> str:
        """Of the files that tell it."""
        return "made-with-turns" if self.turns else "made"

    @property
    def shapes(self) -> tuple[tuple[int, float, float], ...]:
        """Of the logs; of few cells the busy ones, where harm is."""
        return tuple(shape for shape in SHAPES if not self.quick or shape[1] >= BUSY)


def seeds_from(first: int, logs: int) -> tuple[int, ...]:
    return tuple(range(first, first + logs))


def reproduce_made(out: Path, trial: Trial) -> list[Path]:
    """Play the logs of a trial and write made.md, made.json and made.csv (made-with-turns.md and so on) to `out`.

    What `out` has of a log is not played again, so that what was interrupted goes on.
    """
    kept = out / (f"{trial.name}-quick" if trial.quick else trial.name)
    kept.mkdir(parents=True, exist_ok=True)
    cells: list[Cell] = []
    names = [(model, seed) for seed in trial.seeds for model in Model]
    for done, (model, seed) in enumerate(names):
        progress.tell(f"{model.value}, seed {seed}", done / len(names))
        path = kept / f"{model.value}-{seed}-{trial.jobs}.json"
        if not path.exists():
            cells_left = (len(names) - done) * len(SHARES) * len(trial.deltas) * len(trial.lambdas_s)
            found = [cell.to_json() for cell in _play(model, seed, trial, cells_left)]
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(found), encoding="utf-8")
            fresh.replace(path)
        cells += [_cell(row) for row in json.loads(path.read_text(encoding="utf-8"))]
    return _write(out, cells, trial)


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(**{**row, "all_s": tuple(row["all_s"]), "others_s": tuple(row["others_s"])})


def _play(model: Model, seed: int, trial: Trial, again: int) -> Iterator[Cell]:
    workload, load = made_up(model, seed, trial)
    easy = run(workload, Policy.EASY).end - workload.jobs.submit
    for share in SHARES:
        candidates = candidates_of(workload, seed, share)
        for delta in trial.deltas:
            for lambda_s in trial.lambdas_s:
                given = BundlingParameters(
                    suspend=True,
                    order=Order.LEAST_WORK,
                    guard=Guard.ON,
                    delta=delta,
                    lambda_s=lambda_s,
                    j0_in_turn=trial.turns,
                )
                outcome = run(workload, Policy.EJB, parameters=given, candidates=candidates, again=again)
                after, elastic = outcome.end - workload.jobs.submit, outcome.elastic != 0
                told = harm(easy, after, elastic)
                yield Cell(
                    model=model.value, seed=seed, processors=workload.processors, load=load, share=share, delta=delta,
                    lambda_s=lambda_s, **told,
                )  # fmt: skip


def made_up(model: Model, seed: int, trial: Trial) -> tuple[Workload, float]:
    """A log of a trial, and its load."""
    first = JUDGED_SEED if seed >= JUDGED_SEED else TUNED_SEED
    processors, load, most = trial.shapes[(seed - first) % len(trial.shapes)]
    log = generate(model, jobs=trial.jobs, processors=processors, seed=seed, load=load, overestimate=most)
    return workload_of(log, model.value, processors=processors), load


def candidates_of(workload: Workload, seed: int, share: float) -> Any:
    """Flags of the jobs that may become elastic: a share of the wide ones."""
    return (workload.jobs.processors >= NARROWEST) & (np.random.default_rng(seed).random(len(workload)) < share)


def harm(before: Any, after: Any, elastic: Any) -> dict[str, Any]:
    """The figures of :class:`Harm`, of turnarounds in seconds and flags of the elastic jobs."""
    return {
        "all_s": (float(before.sum()), float(after.sum())),
        "others_s": (float(before[~elastic].sum()), float(after[~elastic].sum())),
        "elastic_percent": change(float(before[elastic].sum()), float(after[elastic].sum())) if elastic.any() else None,
    }


def verdict(cells: Sequence[Harm]) -> str:
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


def pooled(cells: Sequence[Harm]) -> str:
    """`-12.3 / -4.5`: all jobs of these cells together, and those that are not elastic."""
    sums = [sum(one) for one in zip(*[(*cell.all_s, *cell.others_s) for cell in cells], strict=True)]
    return f"{change(sums[0], sums[1]):+.1f} / {change(sums[2], sums[3]):+.1f}"


def _write(out: Path, cells: Sequence[Cell], trial: Trial) -> list[Path]:
    worst = sorted(cells, key=lambda cell: -max(cell.all_jobs, cell.others))
    rows = [
        (cell.model, str(cell.seed), str(cell.processors), f"{cell.load:g}", f"{cell.share:g}", f"{cell.delta:g}",
         f"{cell.lambda_s:g}", f"{cell.all_jobs:+.1f} %",
         "-" if cell.elastic_percent is None else f"{cell.elastic_percent:+.1f} %", f"{cell.others:+.1f} %")
        for cell in worst
    ]  # fmt: skip
    pools = [
        [model.value, f"{lambda_s:g}", *(
            pooled([
                cell for cell in cells
                if (cell.model, cell.lambda_s, cell.delta) == (model.value, lambda_s, delta)
            ])
            for delta in trial.deltas
        )]
        for model in Model for lambda_s in trial.lambdas_s
    ]  # fmt: skip
    counts = [[model.value, *_counts([cell for cell in cells if cell.model == model.value])] for model in Model]
    counts.append(["all of them", *_counts(cells)])
    paths = [out / f"{trial.name}.{end}" for end in ("md", "json", "csv")]
    text = (
        f"# The guard against EASY on made-up logs\n\n{verdict(cells)}\n\n"
        f"{len(trial.seeds)} logs of each of {len(Model)} models, {trial.jobs} jobs each, "
        f"seeds {seeds_told(trial.seeds)}."
        f"{' J0s stay until their turn while others are later than elastic jobs.' if trial.turns else ''}\n\n"
        f"{markdown_table(COUNTED, counts)}\n"
        f"The worst cells, by the jobs that they harm most:\n\n{markdown_table(HEAD, rows[:SHOWN])}\n"
        "All cells of a model pooled, change of the mean turnaround in per cent, all jobs / those that are not elastic:"
        f"\n\n{markdown_table(('model', 'lambda (s)', *(f'Delta {one:g}' for one in trial.deltas)), pools)}"
    )
    paths[0].write_text(text, encoding="utf-8")
    document = {
        "verdict": verdict(cells),
        "seeds": trial.seeds,
        "turns": trial.turns,
        "cells": [cell.to_json() for cell in cells],
    }
    paths[1].write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
    write_csv(paths[2], HEAD, rows)
    return paths


def seeds_told(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and tuple(seeds) == seeds_from(seeds[0], len(seeds)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _counts(cells: Sequence[Cell]) -> list[str]:
    """Of some cells: how many there are, in how many each of the three kinds of jobs is harmed, and how much at worst;
    and all of them pooled."""
    figures = (
        [cell.all_jobs for cell in cells],
        [cell.elastic_percent or 0.0 for cell in cells],
        [cell.others for cell in cells],
    )
    harmed = [f"{sum(one > PROMISED for one in each)} ({max(each):+.1f} %)" for each in figures]
    return [str(len(cells)), *harmed, pooled(cells)]
