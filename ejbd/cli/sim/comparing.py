"""`ejb sim compare`: several settings on one log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, output
from ejbd.cli.output import Output
from ejbd.cli.sim.options import (
    DefaultMemory,
    Limit,
    Memory,
    Procs,
    Reshape,
    Rule,
    RuleName,
    TiesName,
    TiesOption,
    Trace,
    Trim,
    TrimName,
    figure,
    source_of,
    tell_rows,
)
from ejbd.cli.sim.progress import shown

_MEANS = ("mean_wait_s", "mean_turnaround_s", "mean_bounded_slowdown", "idle_procs_while_queued", "utilization")
_HEAD = ("SETTING", "WAIT", "TURNAROUND", "SLOWDOWN", "IDLE", "UTILIZATION", "CHANGE", "MAX SLOWDOWN", "INVERSIONS")
_SHIFTS = (("others_start", "start of others"), ("elastic_end", "end of elastic"))
_SHIFT_HEAD = ("SETTING", "WHAT", "JOBS", "LATER", "BY (MEAN)", "BY (95 %)", "EARLIER", "BY (MEAN)", "BY (95 %)")


def compare(
    trace: Trace,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="POLICY[:KEY=VALUE,...]...", help="Compare these, e.g. easy ejb ejb:omax=16,suspend."),
    ],
    procs: Procs = None,
    ties: TiesOption = TiesName.paper,
    limit: Limit = None,
    trim: Trim = TrimName.none,
    rule: Rule = RuleName.archive,
    memory: Memory = None,
    default_memory: DefaultMemory = None,
    reshape: Reshape = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a log under several settings; changes are against the first.

    With `easy` as the first, the second table says what EJB does to jobs that are not elastic. It has how many start
    later than without it and how many earlier. It has by how many seconds on average, and by how many at most in 95 %
    of them. The tables of width by length say how the mean turnaround of jobs of so many processors and such a run time
    changes.
    """
    from ejbd.sim.comparing import play_all
    from ejbd.sim.settings import Setting, parse_setting

    given = {"ties": ties.value, "trim": trim.value, "memory": memory, "default-memory": default_memory}
    given["reshape"] = None if reshape is None else str(reshape)
    base = Setting().having({key: value for key, value in given.items() if value is not None})
    parsed = [(text, parse_setting(text, base)) for text in settings]
    with shown():
        workload, reports = play_all(source_of(trace, procs, limit, rule), parsed)
    tell_rows(workload)
    out = output(as_json, False)
    out.result(reports, lambda: _tables(out, reports))


def _tables(out: Output, reports: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for report in reports:
        row = [report["setting"], *(figure(report[key]) for key in _MEANS)]
        row.append(_percent(report.get("turnaround_change_percent")))
        row.append(figure(report["max_bounded_slowdown"]))
        changed = (report.get("beside_first") or {}).get("priority_inversions_change_percent")
        row.append(figure(report["priority_inversions"]) + ("" if changed is None else f" ({_percent(changed)})"))
        rows.append(row)
    out.table(_HEAD, rows, frozenset(range(1, len(_HEAD))))
    rows = [
        [report["setting"], words, *_shift(report["beside_first"][key])]
        for report in reports
        if report.get("beside_first")
        for key, words in _SHIFTS
        if report["beside_first"][key]["jobs"]
    ]
    if rows:
        out.line()
        out.line(f"Jobs one by one, beside {reports[0]['setting']}; seconds")
        out.table(_SHIFT_HEAD, rows, frozenset(range(2, len(_SHIFT_HEAD))))
    for report in reports:
        if (report.get("beside_first") or {}).get("grid"):
            _grid(out, report, reports[0]["setting"])


def _grid(out: Output, report: Mapping[str, Any], first: str) -> None:
    """The change of the mean turnaround by width and length, and how many jobs that is."""
    from ejbd.sim.grid import LENGTH_NAMES

    cells = {(cell["processors"], cell["run"]): cell for cell in report["beside_first"]["grid"]}
    lengths = [name for name in LENGTH_NAMES if any(length == name for _, length in cells)]
    rows = []
    for width in dict.fromkeys(width for width, _ in cells):
        found = [cells.get((width, length)) for length in lengths]
        rows.append([width, *("" if cell is None else _cell(cell) for cell in found)])
    out.line()
    out.line(f"Turnaround by width and length (jobs), {report['setting']} beside {first}")
    out.table(["PROCESSORS", *(name.upper() for name in lengths)], rows, frozenset(range(1, len(lengths) + 1)))


def _cell(cell: Mapping[str, Any]) -> str:
    return f"{_percent(cell['turnaround_change_percent'])} ({cell['jobs']})"


def _shift(found: Mapping[str, Any]) -> list[str]:
    row = [figure(found["jobs"])]
    for side in (found["later"], found["earlier"]):
        seconds = ("" if side[key] is None else f"{side[key]:.0f}" for key in ("mean_s", "p95_s"))
        row += [f"{side['jobs']} ({side['percent']:.1f} %)", *seconds]
    return row


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} %"
