"""`ejb sim reproduce evolving`: Tables 1 and 2 of Klein & Perez (2011) beside ours, as tables, plots and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ejbd.errors import Code, EjbError
from ejbd.studies import plotting
from ejbd.studies.evolving.experiment import Row, Triple, experiment
from ejbd.studies.evolving.printed import NODES, PRINTED, SYSTEM, TESTS, USER, off

SEED = 2011
_SMALL = 10.0


def reproduce_evolving(out: Path, *, tests: int = TESTS, seed: int = SEED) -> list[Path]:
    """Write everything into a folder. Raises EjbError where that cannot be written to."""
    rows = experiment(tests, seed)
    try:
        out.mkdir(parents=True, exist_ok=True)
        paths = [out / "evolving.json", out / "evolving.md"]
        paths[0].write_text(json.dumps({"tests": tests, "seed": seed, "nodes": NODES, "rows": _json(rows)}, indent=1))
        paths[1].write_text(page(rows, tests, seed))
        return paths + draw(rows, out)
    except OSError as error:
        raise EjbError(Code.INVALID, f"{out} cannot be written to: {error.strerror}", where="--out") from error


def _json(rows: list[Row]) -> list[dict[str, Any]]:
    return [{"algorithm": row.algorithm, **row.values, "off": wide_of(row)} for row in rows]


def wide_of(row: Row) -> list[str]:
    """The measures of which our mean is not theirs."""
    return [name for name in (*SYSTEM, *USER) if off(name, PRINTED[row.algorithm][name][1], row.values[name][1])]


def page(rows: list[Row], tests: int, seed: int) -> str:
    """Both tables: what the paper prints, and ours below it."""
    off_by = [f"{row.algorithm}: {', '.join(wide_of(row))}" for row in rows if wide_of(row)]
    parts = [
        "# Evolving jobs: Klein & Perez (2011), Tables 1 and 2",
        f"{tests} random tests on {NODES} nodes (seed {seed}), each measure as least, **mean**, greatest. "
        "In each cell the paper's figures stand above ours.",
        "Means that are further from the paper's than its rounding and one unit of its last place: "
        + ("; ".join(off_by) if off_by else "none")
        + ".",
        "## Table 1: of the system",
        _table(rows, {**{name: heading for name, (heading, _) in SYSTEM.items()}, "time": "schedule time (ms)"}),
        "## Table 2: of the jobs",
        _table(rows, {name: heading for name, (heading, _) in USER.items()}),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: list[Row], columns: dict[str, str]) -> str:
    lines = ["| algorithm | " + " | ".join(columns.values()) + " |", "| --- |" + " --- |" * len(columns)]
    for row in rows:
        cells = [f"{_three(PRINTED[row.algorithm][name])}<br>{_three(row.values[name])}" for name in columns]
        lines.append(f"| {row.algorithm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _three(values: Triple) -> str:
    least, mean, greatest = (f"{value:.3g}" if abs(value) < _SMALL else f"{value:.0f}" for value in values)
    return f"{least} **{mean}** {greatest}"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """The means of every measure, the paper's beside ours."""
    columns = {**SYSTEM, **USER}
    pyplot = plotting.pyplot()
    figure, grid = pyplot.subplots(3, 3, figsize=(10, 8))
    names = [row.algorithm for row in rows]
    for axes, (measure, (heading, _)) in zip(grid.flat, columns.items(), strict=True):
        theirs = [PRINTED[name][measure][1] for name in names]
        ours = [row.values[measure][1] for row in rows]
        places = range(len(names))
        axes.bar([at - 0.19 for at in places], theirs, 0.36, color=plotting.BEFORE, label="Klein & Perez")
        axes.bar(
            [at + 0.19 for at in places], ours, 0.36, color=plotting.AFTER, hatch="//", edgecolor="white", label="here"
        )  # fmt: skip
        axes.set_xticks(list(places), names, fontsize=7)
        axes.set_title(heading, fontsize=9)
        axes.grid(axis="x", visible=False)
    plotting.legend_above(figure, grid.flat[0])
    return plotting.save(figure, out, "evolving")
