"""`ejb sim reproduce speculative`: Table 1 and Figures 2 to 8 of Gainaru et al. (ICPP 2019) as tables and plots."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ejbd.core.speculation.laws import law_of
from ejbd.core.speculation.sequence import plan_of
from ejbd.errors import Code, EjbError
from ejbd.sim import progress
from ejbd.studies.speculative import plots
from ejbd.studies.speculative.laws import ALLOCATIONS, HOUR, LAWS
from ejbd.studies.speculative.scenarios import (
    Asks,
    at_optimal,
    hpc,
    neuroscience,
    scenario_1,
    scenario_2,
    scenario_3,
    scenario_4,
    t_optimal,
)

TABLE_1 = "truncnorm:mu=8h,sigma=2h,low=0h,high=20h"
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
HISTORIES = (1, 2, 5, 10, 20, 50, 100)
Row = dict[str, Any]


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half of its 95 % interval (normal)."""
    count = len(values)
    mean = sum(values) / count
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1)) if count > 1 else math.nan
    return mean, 1.96 * spread / math.sqrt(count)


def _row(what: Row, runs: int, one: Callable[[int], Any]) -> Row:
    played = [one(seed) for seed in range(runs)]
    utilisation = mean_and_half([run.utilisation for run in played])
    response = mean_and_half([run.response_s / HOUR for run in played])
    every = mean_and_half([run.all_response_s / HOUR for run in played])
    return what | {
        "utilisation": utilisation[0], "utilisation_half": utilisation[1], "response_h": response[0],
        "response_half": response[1], "all_response_h": every[0], "all_response_half": every[1],
    }  # fmt: skip


def table_1() -> list[Row]:
    rows: list[Row] = [{"algorithm": "Classical HPC", "sequence_h": [20.0], "cost_h": 20.0}]
    for zeta in (0.0, 0.1, 0.5, 0.9):
        plan = plan_of(law_of(TABLE_1), zeta=zeta)
        name = f"ATOptimal (zeta = {zeta})" if zeta else "TOptimal"
        times = [time / HOUR for time in plan.sequence_s]
        rows.append({"algorithm": name, "sequence_h": times, "cost_h": plan.expected_cost_s / HOUR})
    return rows


def figures_2_and_3(runs: int) -> list[Row]:
    ways: dict[str, Asks] = {
        "HPC": hpc, "Neuroscience": neuroscience(), "Neuroscience, then the bound": neuroscience(to_the_bound=True),
        "TOptimal": t_optimal,
    }  # fmt: skip
    return [
        _row(
            {"law": law, "allocation": allocation, "algorithm": name, "kept": kept}, runs,
            partial(scenario_1, law, allocation, asks, kept=kept),
        )
        for law in LAWS
        for allocation in ALLOCATIONS
        for kept in ((True, False) if allocation in ("Full", "Beta") else (True,))
        for name, asks in ways.items()
    ]  # fmt: skip


def figure_4(runs: int) -> list[Row]:
    ways: list[tuple[str, int, Asks]] = [("HPC", 0, hpc), ("TOptimal", 0, t_optimal)]
    ways += [("Neuroscience", count, neuroscience(count)) for count in HISTORIES]
    return [
        _row(
            {"algorithm": name, "history": count}, runs,
            partial(scenario_1, "Normal", "Beta", asks),
        )
        for name, count, asks in ways
    ]  # fmt: skip


def figure_5(runs: int) -> list[Row]:
    return [
        _row(
            {"small_share": share, "algorithm": name, "speculative": speculative, "kept": kept}, runs,
            partial(scenario_2, share, asks, speculative, kept=kept),
        )
        for kept in (True, False)
        for share in SHARES
        for name, asks in (("HPC", hpc), ("TOptimal", t_optimal))
        for speculative in (False, True)
    ]  # fmt: skip


def figures_6_and_7(runs: int) -> list[Row]:
    return [
        _row({"rate": rate, "algorithm": name}, runs, partial(scenario_3, rate, asks))
        for rate in RATES
        for name, asks in (("HPC", hpc), ("TOptimal", t_optimal), ("ATOptimal", at_optimal(rate)))
    ]


def figure_8(runs: int) -> list[Row]:
    return [
        _row(
            {"algorithm": name, "speculative": speculative, "kept": kept}, runs,
            partial(scenario_4, asks, speculative, kept=kept),
        )
        for kept in (True, False)
        for name, asks in (("HPC", hpc), ("TOptimal", t_optimal), ("ATOptimal", at_optimal(0.21)))
        for speculative in (False, True)
    ]  # fmt: skip


def reproduce_speculative(out: Path, *, runs: int = 50) -> list[Path]:
    """Make everything, each figure the mean of so many runs; the files. Raises EjbError."""
    if runs < 1:
        raise EjbError(Code.INVALID, "a mean is of 1 run or more", where="--runs")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EjbError(Code.INVALID, f"{out} cannot be made: {error.strerror}") from error
    parts: dict[str, Callable[[], list[Row]]] = {
        "table1": table_1,
        "figure2": lambda: figures_2_and_3(runs),
        "figure4": lambda: figure_4(runs),
        "figure5": lambda: figure_5(runs),
        "figure6": lambda: figures_6_and_7(runs),
        "figure8": lambda: figure_8(runs),
    }
    found: dict[str, list[Row]] = {}
    for at, (name, make) in enumerate(parts.items()):
        progress.tell(f"speculative scheduling, {name}", at / len(parts))
        found[name] = make()
    paths = [out / "speculative.json", out / "speculative.md"]
    paths[0].write_text(json.dumps({"runs": runs, **found}, indent=1) + "\n", encoding="utf-8")
    paths[1].write_text(plots.tables(found, runs), encoding="utf-8")
    return [*paths, *plots.draw(found, out)]
