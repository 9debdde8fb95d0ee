"""`ejb sim reproduce reshape`: reshaped jobs on the paper's logs, beside an independent implementation's figures and
beside over-subscription; and how large a share of the jobs it takes until a centre notices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ejbd.sim import progress
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.settings import Setting, Source
from ejbd.sim.sweep import Kind, Point, sweep
from ejbd.sim.workload import RowRule
from ejbd.studies.paper.logs import logs_in
from ejbd.studies.paper.report import RUNS
from ejbd.studies.reshaping.reference import ALL, BESIDE, CLOSE, LOGS, ONE, Row

LAMBDAS = tuple(str(lambda_s) for lambda_s in RUNS)
"""What a mean over many elastic jobs is taken over: a second of lambda more, and their turnaround is another."""
REFERENCE = {"grow-to-suspend": "off"}
"""The rule that the reference implementation has, and the default has not: a run that will be suspended never grows."""
LOAD = {"suspend": "on", "order": "least-work", "trim": "paper"}
SHARES = ("0.05", "0.1", "0.2", "0.5", "1")
BESIDE_SHARES = ("0.2", "1")
NOTICED = -1.0  # per cent: from this change of the mean turnaround of all jobs on a centre notices
QUICK_ROWS = 3000  # of each log


@dataclass(frozen=True, slots=True)
class Asked:
    """One simulation, and where its figure belongs: the table, the line, the log. `reference`: what it should be."""

    table: str
    name: str
    log: str
    point: Point
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Change of the mean turnaround in per cent: of all jobs, and (all at once) of those that are not elastic.

    `deviation`: the standard one, where this is the mean of several lambdas.
    """

    table: str
    name: str
    log: str
    percent: float
    others: float | None
    reference: float | None
    deviation: float | None = None

    @property
    def off(self) -> float | None:
        """Points from the reference."""
        return None if self.reference is None else self.percent - self.reference

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in (*self.__slots__, "off")}


TABLES = {
    "one": "One elastic job a simulation",
    "all": "All jobs of 8 processors and more elastic, waiting first, least work, suspended, no guard",
    **{
        f"share-{share}": f"The same with the guard, {100 * float(share):.0f} % of those jobs elastic"
        for share in BESIDE_SHARES
    },
    "needed": "Reshaped, alpha .9, with the guard: by the share of elastic jobs",
}


def asked(sources: Mapping[str, Source], tables: Sequence[str] = (), *, as_reference: bool = False) -> list[Asked]:
    """Every simulation of the tables that are wanted (none named: all of them, or all that have a reference)."""
    known = [table for table in TABLES if not as_reference or table in ("one", "all")]
    wanted = [table for table in known if not tables or table in tables]
    return [
        one
        for log, source in sources.items()
        for table in wanted
        for one in _of_table(table, log, source, as_reference)
    ]


def _of_table(table: str, log: str, source: Source, as_reference: bool) -> list[Asked]:
    rule = REFERENCE if as_reference else {}
    if table == "one":
        base = {"trim": "paper", "min-procs": "9", **rule}
        return [_asked(table, row, log, source, base, Kind.TARGET) for row in ONE]
    if table == "all":
        bases = [{"lambda": one, **LOAD, "guard": "off", **rule} for one in LAMBDAS] if as_reference else []
        bases = bases or [{**LOAD, "guard": "off"}]
        return [_asked(table, row, log, source, base, Kind.RUN) for row in ALL for base in bases]
    guarded = {**LOAD, "guard": "on"}
    if table == "needed":
        rows = [Row(share, {"reshape": "0.9", "omax": "64", "elastic-share": share}) for share in SHARES]
    else:
        share = table.removeprefix("share-")
        rows = [Row(row.name, {**row.settings, "elastic-share": share}) for row in BESIDE]
    return [_asked(table, row, log, source, guarded, Kind.RUN) for row in rows]


def _asked(table: str, row: Row, log: str, source: Source, base: Mapping[str, str], kind: Kind) -> Asked:
    setting = Setting().having({"policy": "ejb", **base, **row.settings})
    reference = row.reference[LOGS.index(log)] if row.reference else None
    return Asked(table, row.name, log, Point(source, setting, kind), reference)


def _found(wanted: Sequence[Asked], played: Sequence[Mapping[str, Any]], *, whole: bool) -> list[Found]:
    """One figure for each place of a table: where several simulations belong there, their mean."""
    places: dict[tuple[str, str, str], list[tuple[Asked, Mapping[str, Any]]]] = {}
    for one, row in zip(wanted, played, strict=True):
        places.setdefault((one.table, one.name, one.log), []).append((one, row))
    found = []
    for place, runs in places.items():
        changes = [row["turnaround_change_percent"] or 0.0 for _, row in runs]
        others = [row["others_change_percent"] for _, row in runs if row.get("others_change_percent") is not None]
        deviation = stdev(changes) if len(changes) > 1 else None
        reference = runs[0][0].reference if whole else None
        found.append(Found(*place, fmean(changes), fmean(others) if others else None, reference, deviation))
    return found


def reproduce_reshape(
    traces: Path,
    out: Path,
    *,
    workers: int = 1,
    limit: int | None = None,
    quick: bool = False,
    tables: Sequence[str] = (),
    logs: Sequence[str] = (),
    as_reference: bool = False,
) -> list[Path]:
    """Simulate and write reshape.md, reshape.json and reshape.csv to `out`; the files, the page first.

    Results are kept in `out`/cells, so that what was interrupted goes on. `quick`: of each log the first rows, unless
    `limit` says how many. `tables`, `logs`: only these. Of the paper's four logs those count that are in `traces`;
    raises EjbError where none is. `as_reference`: by the rule of the reference implementation, which is not EJB's
    own; all jobs at once as means over `LAMBDAS`.
    """
    rows = limit or (QUICK_ROWS if quick else None)
    sources = {
        known.name: Source(path, known.processors, RowRule.PYSS, rows)  # as in the paper's tables
        for known, path in logs_in(traces)
        if not logs or known.name in logs
    }
    wanted = asked(sources, tables, as_reference=as_reference)

    def tell(done: int, total: int, name: str) -> None:
        progress.tell(f"{done} of {total} simulations" + (f", {name}" if name else ""), done / total)

    points = [one.point for one in wanted]
    played = sweep(points, out / "cells", workers=workers, part=(1, 1), tell=tell)
    found = _found(wanted, played, whole=not rows)
    return _write(out, found, rows, as_reference)


def verdict(found: Sequence[Found]) -> str:
    """How far ours are from the reference, and from which share on a centre notices."""
    told = []
    off = [one for one in found if one.off is not None]
    if off:
        worst = max(off, key=lambda one: abs(one.off or 0.0))
        far = sum(abs(one.off or 0.0) > CLOSE for one in off)
        told.append(
            f"Of {len(off)} figures with a reference {len(off) - far} are within {CLOSE:g} points of it; the farthest "
            f"is {worst.off:+.1f} points off ({worst.log}, {worst.name})."
        )
    for log in dict.fromkeys(one.log for one in found):
        line = [(float(one.name), one.percent) for one in found if one.table == "needed" and one.log == log]
        if line:
            share = next((share for share, percent in sorted(line) if percent <= NOTICED), None)
            at = "at no share" if share is None else f"from {100 * share:.0f} % of the wide jobs on"
            told.append(f"{log}: all jobs' mean turnaround is {-NOTICED:g} % shorter {at}.")
    worse = [one for one in found if one.percent > 0.0 or (one.others or 0.0) > 0.0]
    if worse:
        one = max(worse, key=lambda one: max(one.percent, one.others or 0.0))
        told.insert(
            0,
            f"In {len(worse)} of {len(found)} simulations all jobs, or those that are not elastic, are worse off than "
            f"under EASY, at worst by {max(one.percent, one.others or 0.0):.1f} % ({one.log}, {one.name}).",
        )
    return " ".join(told)


def _write(out: Path, found: Sequence[Found], rows: int | None, as_reference: bool) -> list[Path]:
    logs = list(dict.fromkeys(one.log for one in found))
    parts = [f"# Reshaped jobs\n\n{verdict(found)}\n"]
    if rows:
        parts.append(f"Only the first {rows} rows of each log were simulated, to which no reference belongs.\n")
    if as_reference:
        parts.append(
            "Played by the reference's rule: a run that will be suspended does not grow. All jobs at once: means and "
            f"standard deviations over {len(LAMBDAS)} runs, lambda {LAMBDAS[0]} to {LAMBDAS[-1]} s.\n"
        )
    parts.append(
        "Change of the mean turnaround against EASY, per cent; where there is a reference: reference / ours. Behind a "
        "semicolon: of the jobs that are not elastic.\n"
    )
    for table, title in TABLES.items():
        here = [one for one in found if one.table == table]
        if here:
            names = list(dict.fromkeys(one.name for one in here))
            cells = {(one.name, one.log): _cell(one) for one in here}
            body = [[name, *(cells.get((name, log), "-") for log in logs)] for name in names]
            head = "share" if table == "needed" else "setting"
            parts.append(f"## {title}\n\n{markdown_table([head, *logs], body)}")
    (out / "reshape.md").write_text("\n".join(parts), encoding="utf-8")
    document = {
        "rows_of_each_log": rows,
        "as_reference": as_reference,
        "verdict": verdict(found),
        "cells": [one.to_json() for one in found],
    }
    (out / "reshape.json").write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    columns = ["table", "setting", "log", "all", "not elastic", "reference"]
    lines = [[one.table, one.name, one.log, one.percent, one.others, one.reference] for one in found]
    write_csv(out / "reshape.csv", columns, lines)
    return [out / f"reshape.{end}" for end in ("md", "json", "csv")]


def _cell(one: Found) -> str:
    ours = f"{one.percent:+.1f}" + ("" if one.deviation is None else f" ± {one.deviation:.1f}")
    if one.reference is not None:
        ours = f"{one.reference:+.1f} / {ours}"
    return ours if one.others is None else f"{ours}; {one.others:+.1f}"
