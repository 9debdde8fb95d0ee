"""`ejb sim value`: what elastic jobs would have been worth on a centre's own log, as a page to read."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ejbd.cli.sim.options import Limit, Reshape, Rule, RuleName, Traces, Trim, TrimName, source_of, tell_rows
from ejbd.cli.sim.policy_options import policy_options
from ejbd.cli.sim.progress import shown
from ejbd.errors import Code, EjbError


@policy_options(unless="without: as a queue has it")
def value(
    traces: Traces,
    out_dir: Annotated[Path, typer.Option("--out", help="Write the page value.md here, plots and tables into value/.")],
    procs: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option(
            "--procs", min=1, help="Give the cluster so many processors; of several logs each its own, in their order."
        ),
    ] = None,
    names: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--name", help="Call a log this on the page; of several each its own."),
    ] = None,
    min_procs: Annotated[int, typer.Option("--min-procs", min=1, help="Keep narrower jobs rigid.")] = 8,
    deltas: Annotated[
        str, typer.Option("--deltas", metavar="X,...", help="Find out with these when it stops paying.")
    ] = "1,1.2,1.5,2,3",
    lambdas: Annotated[
        str, typer.Option("--lambdas", metavar="S,...", help="Find out with these when it stops paying.")
    ] = "30,120,600,1800",
    reshape: Reshape = None,
    limit: Limit = None,
    trim: Trim = TrimName.paper,
    rule: Rule = RuleName.archive,
    **parameters: Any,
) -> None:
    """Write a page on what elastic jobs would have been worth: which users gain or lose, and when it would stop paying.

    From a log of your own (SWF), or from `sacct -a -P -o JobID,User,Submit,Start,End,NNodes,NCPUS,TimelimitRaw,State`.
    """
    from dataclasses import replace

    from ejbd.sim.settings import load
    from ejbd.studies.value.page import write_page
    from ejbd.studies.value.worth import live_setting, value_of

    wanted = _each(procs, traces, "--procs")
    titles = _each(names, traces, "--name")
    sources = [source_of(trace, size, limit, rule) for trace, size in zip(traces, wanted, strict=True)]
    setting = live_setting(parameters, min_procs, trim is TrimName.paper)
    if reshape is not None:
        setting = setting.having({"reshape": str(reshape)})
    axes = _figures(deltas, "--deltas", 0.01), _figures(lambdas, "--lambdas", 0.0)
    found = []
    with shown():
        for source, title in zip(sources, titles, strict=True):
            workload = load(source)
            tell_rows(workload)
            one = value_of(source, setting, deltas=axes[0], lambdas_s=axes[1])
            found.append(one if title is None else replace(one, name=title))
    try:
        paths = write_page(out_dir, found, _command(traces, wanted, names or [], parameters, min_procs, rule, reshape))
    except OSError as error:
        raise EjbError(Code.INVALID, f"{out_dir} cannot be written: {error.strerror}") from error
    for path in paths:
        print(path)


def _each(given: list[Any] | None, traces: list[Path], option: str) -> list[Any]:
    """One for each log: none at all, the same for all, or as many as there are."""
    if not given:
        return [None] * len(traces)
    if len(given) not in (1, len(traces)) or (option == "--name" and len(given) != len(traces)):
        what = f"{len(given)} times {option} for {len(traces)} logs"
        raise EjbError(Code.INVALID, what, hint=f"give {option} once for each log, in their order")
    return given * len(traces) if len(given) == 1 else given


def _figures(text: str, option: str, least: float) -> list[float]:
    try:
        found = sorted({float(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(least <= one < math.inf for one in found):
        raise EjbError(Code.INVALID, f"{option} {text} is not a list of figures of {least:g} and more")
    return found


def _command(
    traces: list[Path],
    procs: list[Any],
    names: list[str],
    parameters: dict[str, Any],
    min_procs: int,
    rule: RuleName,
    reshape: float | None,
) -> str:
    """What was asked for, without the folders of this machine."""
    words = ["ejb", "sim", "value", *(trace.name for trace in traces)]
    for option, given in (("--procs", procs), ("--name", names)):
        words += [word for one in given if one is not None for word in (option, str(one))]
    for name, one in parameters.items():
        words += [f"--{name.removesuffix('_s').replace('_', '-')}", str(one)]
    if reshape is not None:
        words += ["--reshape", f"{reshape:g}"]
    if min_procs != 8:
        words += ["--min-procs", str(min_procs)]
    if rule is not RuleName.archive:
        words += ["--rows", rule.value]
    lines, line = [], ""
    for word in map(shlex.quote, [*words, "--out", "DIR"]):
        if len(line) + len(word) > 100:
            lines.append(line + " \\")
            line = "   "
        line += (" " if line else "") + word
    return "\n".join([*lines, line])
