"""`ejb sim reproduce learned`: the paper's logs with walltimes learned while they are played, EASY alone and EJB."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ejbd.errors import Code, EjbError
from ejbd.sim import progress
from ejbd.sim.report import markdown_table, write_csv
from ejbd.sim.settings import Source, load
from ejbd.sim.workload import Workload
from ejbd.studies.paper.logs import logs_in
from ejbd.studies.speculative.gapplay import GapPlay
from ejbd.studies.speculative.learning import Way, learned, longest_of_ten, mean_of_two, own, quantile, t_optimal
from ejbd.studies.speculative.raiseplay import RaisePlay
from ejbd.studies.speculative.traces import LearningPlay, Played

OWN, TRUE = "user's request", "true run time"
WAYS: dict[str, Callable[[], Way]] = {
    OWN: own,
    "longest of the last ten": longest_of_ten,
    "mean of the last two": mean_of_two,
    "TOptimal, by user": partial(learned, t_optimal, alike=False),
    "TOptimal, by user, width and request": partial(learned, t_optimal),
    "0.95 quantile, by user, width and request": partial(learned, quantile(0.95)),
    "0.99 quantile, by user, width and request": partial(learned, quantile(0.99)),
    TRUE: own,
}
SENT, SENT_KEPT, RAISED = "request, sent into windows", "request, sent, work kept", "mean of two, raised to the request"
UNDER_EASY: dict[str, Callable[[Workload], Played]] = {  # the batch system's own jobs, so there is no such row of EJB
    SENT: lambda workload: GapPlay(workload).play(),
    SENT_KEPT: lambda workload: GapPlay(workload, keeps=True).play(),
    RAISED: lambda workload: RaisePlay(workload).play(),
}
EASY = "EASY"
SCHEDULERS = (EASY, "EJB")
HEAD = (
    "log", "scheduler", "walltimes", "turnaround (h)", "beside the request", "bounded slowdown", "utilisation",
    "wasted (processor-h)", "overhead of wide jobs", "runs killed",
)  # fmt: skip


def reproduce_learned(traces: Path, out: Path, *, limit: int | None = None, only: Sequence[str] = ()) -> list[Path]:
    """Play every log in every way and write learned.md, learned.json and learned.csv to `out`, anew after each play.

    What `out` has is not played again, so that what was interrupted goes on. `limit`: the first rows of each log only.
    `only`: these ways, beside the user's request. Raises EjbError for one that is not known, where none of the logs is
    in `traces`, or `out` has plays of something else.
    """
    paths = [out / f"learned.{end}" for end in ("md", "json", "csv")]
    plays: dict[tuple[str, str, str], dict[str, Any]] = _before(paths[1], limit)
    logs = logs_in(traces)
    chosen = {scheduler: _chosen(scheduler, only) for scheduler in SCHEDULERS}
    total, done = len(logs) * sum(len(ways) for ways in chosen.values()), 0
    for known, path in logs:
        workload = load(Source(path, known.processors, limit=limit))
        for scheduler in SCHEDULERS:
            for name in chosen[scheduler]:
                progress.tell(f"{known.name}, {scheduler}, {name}", done / total)
                done += 1
                key = known.name, scheduler, name
                if key not in plays:
                    played = play(workload, name, scheduler)
                    plays[key] = dict(zip(("log", "scheduler", "walltimes"), key, strict=True)) | played.to_json()
                    _write(paths, list(plays.values()), limit)
    _write(paths, list(plays.values()), limit)
    return paths


def _chosen(scheduler: str, only: Sequence[str]) -> list[str]:
    """The ways that are played under a scheduler: all that it has, or the user's request and those that are named."""
    every = [*WAYS, *(UNDER_EASY if scheduler == EASY else ())]
    for name in only:
        if name not in WAYS and name not in UNDER_EASY:
            hint = "there are " + "; ".join((*WAYS, *UNDER_EASY))
            raise EjbError(Code.INVALID, f"{name!r} is no way to choose walltimes", where="--only", hint=hint)
    found = [name for name in every if name in only]
    if not only:
        return every
    return [OWN, *(name for name in found if name != OWN)] if found else []


def play(workload: Workload, name: str, scheduler: str) -> Played:
    """One log with one way to ask."""
    if name in UNDER_EASY:
        return UNDER_EASY[name](workload)
    if name == TRUE:
        workload = replace(workload, jobs=workload.jobs._replace(walltime=workload.jobs.run))
    return LearningPlay(workload, WAYS[name](), elastic=scheduler == "EJB").play()


def _before(path: Path, limit: int | None) -> dict[tuple[str, str, str], dict[str, Any]]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return {}
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["rows_of_each_log"] != limit:
            rows = kept["rows_of_each_log"] or "all"
            hint = "say the same --limit, or name another folder"
            raise EjbError(Code.INVALID, f"{path} has plays of {rows} rows of each log", where="--out", hint=hint)
        return {(row["log"], row["scheduler"], row["walltimes"]): row for row in kept["plays"]}
    except OSError as error:
        raise EjbError(Code.INVALID, f"{path} cannot be used: {error.strerror}", where="--out") from error
    except (ValueError, KeyError, TypeError):
        raise EjbError(Code.INVALID, f"{path} is no result of this command; move it away", where="--out") from None


def _write(paths: Sequence[Path], plays: Sequence[dict[str, Any]], limit: int | None) -> None:
    page, document, table = paths
    rows = [_row(one, plays) for one in plays]
    fresh = document.with_suffix(".json.new")
    text = json.dumps({"rows_of_each_log": limit, "plays": list(plays)}, indent=1, allow_nan=False)
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.replace(document)
    write_csv(table, HEAD, rows)
    some = f"Only the first {limit} rows of each log were played.\n\n" if limit else ""
    page.write_text(
        f"# Walltimes learned while a log is played\n\n{some}{markdown_table(HEAD, rows)}", encoding="utf-8"
    )


def _row(one: dict[str, Any], plays: Sequence[dict[str, Any]]) -> list[str]:
    base = next(
        other for other in plays
        if (other["log"], other["scheduler"], other["walltimes"]) == (one["log"], one["scheduler"], OWN)
    )  # fmt: skip
    change = 100.0 * (one["turnaround_s"] / base["turnaround_s"] - 1.0)
    return [
        one["log"], one["scheduler"], one["walltimes"], f"{one['turnaround_s'] / 3600.0:.2f}", f"{change:+.1f} %",
        f"{one['bounded_slowdown']:.1f}", f"{one['utilisation']:.3f}", f"{one['wasted_h']:.0f}",
        f"{100.0 * one['overhead']:.1f} %", f"{100.0 * one['killed']:.1f} %",
    ]  # fmt: skip
