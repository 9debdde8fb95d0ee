"""`ejb sim replay`: the decisions of the live manager, made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybePath, output
from ejbd.cli.output import Output, printable
from ejbd.cli.show.words import clock
from ejbd.cli.sim.policy_options import policy_options
from ejbd.errors import Code, EjbError

if TYPE_CHECKING:
    from ejbd.sim.replay import Difference, Replay

DIFFERS = 1  # the exit code where a decision would be another one
_SHOWN = 20


@policy_options(unless="without: as logged", without=("order",))  # that is between jobs
def replay(
    log: Annotated[Path, typer.Argument(help="Read what `ejb events --export` wrote; - is stdin.")],
    swf: Annotated[
        MaybePath,
        typer.Option("--swf", metavar="FILE", help="Write the jobs as a trace, too; to - it alone."),
    ] = None,
    as_json: AsJson = False,
    **changes: Any,
) -> None:
    """Make the decisions of a live log again with this version's core; exit code 1 where one would differ."""
    from ejbd.sim.replay import read_log
    from ejbd.sim.replay import replay as ask_again
    from ejbd.sim.replay_jobs import as_swf
    from ejbd.sim.swf import STANDARD, write_swf

    to_stdout = swf is not None and str(swf) == STANDARD
    if to_stdout and as_json:
        raise EjbError(Code.INVALID, "--swf - and --json are both stdout", hint="give --swf a file")
    found = read_log(log)
    again = ask_again(found, changes)
    out = output(as_json, False)
    trace = None
    if swf is not None:
        trace = as_swf(found.jobs, found.processors)
        try:
            write_swf(swf, trace)
        except OSError as error:
            raise EjbError(Code.INVALID, f"{swf} cannot be written: {error.strerror}") from None
    told = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in changes.items()}
    document: dict[str, Any] = {"log": str(log), "events": found.events, "changes": told, **again.to_json()}
    if trace is not None:
        document["swf"] = {"file": str(swf), "jobs": len(trace)}
    if not to_stdout:
        out.result(document, lambda: _tell(again, changes, out))
    if trace is not None and not as_json:
        left = len(found.jobs) - len(trace)
        out.note(f"{swf}: {len(trace)} jobs" + (f"; {left} that have not run to an end are left out" if left else ""))
    if again.differing:
        raise typer.Exit(DIFFERS)


def _tell(again: Replay, changes: dict[str, Any], out: Output) -> None:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(again.kinds.items()))
    under = " with " + ", ".join(f"{key}={value}" for key, value in changes.items()) if changes else ""
    out.line(f"{again.decisions} decisions ({kinds or 'none'}) made again{under}")
    for difference in again.differing[:_SHOWN]:
        _tell_difference(difference, out)
    if len(again.differing) > _SHOWN:
        out.line(f"and {len(again.differing) - _SHOWN} more (--json has all)")
    same = again.decisions - len(again.differing)
    out.line(f"{same} the same, {len(again.differing)} would differ")
    if again.expecting_otherwise or again.worded_otherwise:
        out.line(
            f"of the same ones {again.expecting_otherwise} would expect another completion, "
            f"{again.worded_otherwise} be told in other words"
        )


def _tell_difference(difference: Difference, out: Output) -> None:
    logged, now = difference.logged, difference.now
    out.line(printable(f"line {logged.line}, job {logged.job}, {clock(logged.at_s)}:"))
    out.line(printable(f"  then {logged.decision.kind.value}: {logged.decision.reason}"))
    out.line(printable(f"  now  {now.kind.value}: {now.reason}"))
