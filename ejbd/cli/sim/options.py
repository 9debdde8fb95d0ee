"""What the commands of `ejb sim` have in common: options, and how they become a source and a setting."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ejbd.cli.options import MaybeFloat, MaybeInt, MaybeText
from ejbd.errors import Code, EjbError
from ejbd.plugins.policies import declared_by, known_policies

if TYPE_CHECKING:
    from ejbd.sim.settings import Setting, Source
    from ejbd.sim.workload import Workload


class TiesName(StrEnum):
    paper = "paper"
    pyss = "pyss"
    batch = "batch"


class TrimName(StrEnum):
    none = "none"
    paper = "paper"


class RuleName(StrEnum):
    archive = "archive"
    pyss = "pyss"


class ModelName(StrEnum):
    lublin = "lublin"
    uniform = "uniform"
    bursty = "bursty"
    wide_heavy = "wide-heavy"
    long_heavy = "long-heavy"
    short_heavy = "short-heavy"


class KindName(StrEnum):
    run = "run"
    target = "target"


class Through(StrEnum):
    sbatch = "sbatch"
    ejb = "ejb"


Trace = Annotated[Path, typer.Argument(help="Read a workload log (SWF), or what sacct printed (- is stdin).")]
Traces = Annotated[list[Path], typer.Argument(help="Read workload logs (SWF), or what sacct printed.")]
Procs = Annotated[
    MaybeInt, typer.Option("--procs", help="Give the cluster so many processors; without, MaxProcs of the header.")
]
Limit = Annotated[MaybeInt, typer.Option("--limit", min=1, help="Read only the first so many rows.")]
Rule = Annotated[RuleName, typer.Option("--rows", help="Read rows by the archive's conventions, or as pyss does.")]
TiesOption = Annotated[TiesName, typer.Option("--ties", help="Choose what comes first at one time.")]
Trim = Annotated[
    TrimName, typer.Option("--trim", help="Leave out of the means the first 1 % and what ends last (paper).")
]
PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME[:KEY=VALUE,...]",
        help="Play under easy, conservative, fcfs, ejb, or another policy of elastic jobs.",
    ),
]
CancelJ0 = Annotated[bool, typer.Option("--cancel-j0", help="Cancel J0 once a subjob carries the job to its end.")]
Fold = Annotated[
    bool,
    typer.Option("--fold", help="With the guard, fold a job in place for one that waits before one is checkpointed."),
]
OneNode = Annotated[
    MaybeInt,
    typer.Option("--one-node", min=1, metavar="N", help="Keep all ranks of a job on one node, of N processors."),
]
ElasticShare = Annotated[
    float, typer.Option("--elastic-share", min=0, max=1, help="Make only this share of the wide jobs elastic, by lot.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="With --elastic-share: draw by this seed.")]
ElasticUsers = Annotated[
    MaybeText,
    typer.Option("--elastic-users", metavar="N,...", help="Make only jobs of these users elastic (the log's numbers)."),
]
ElasticJobs = Annotated[
    MaybeText, typer.Option("--elastic-jobs", metavar="FILE", help="Make only the jobs with numbers in FILE elastic.")
]
Poll = Annotated[
    float,
    typer.Option(
        "--poll", min=0, metavar="S", help="Keep the margins of a live manager that polls so often (0: none)."
    ),
]
Memory = Annotated[
    MaybeText,
    typer.Option(
        "--memory", metavar="SIZE", help="Give a processor this memory (512M): it bounds how many ranks share one."
    ),
]
DefaultMemory = Annotated[
    MaybeText,
    typer.Option(
        "--default-memory",
        metavar="SIZE",
        help="With --memory: take this for a processor where the log does not say (all).",
    ),
]
Reshape = Annotated[
    MaybeFloat,
    typer.Option(
        "--reshape",
        min=0,
        metavar="ALPHA",
        help="Let elastic jobs checkpoint themselves and run on n of P processors at a speed of (n/P)^ALPHA, not share "
        "processors; --omax 64: down to P/64 of them.",
    ),
]
ReshapeMost = Annotated[
    MaybeFloat,
    typer.Option(
        "--reshape-most",
        min=1,
        metavar="TIMES",
        help="With --reshape: let them grow to so many times the P that they asked for while no other job waits.",
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Check the invariants after every event.")]
Arrivals = Annotated[float, typer.Option("--arrivals", min=0.001, help="Let jobs arrive that many times as fast.")]


def source_of(trace: Path, procs: int | None, limit: int | None, rule: RuleName) -> Source:
    from ejbd.sim.settings import Source
    from ejbd.sim.workload import RowRule

    return Source(trace, procs, RowRule(rule.value), limit)


def setting_of(policy: str, parameters: Mapping[str, Any], **words: Any) -> Setting:
    """The setting that the options describe; what is not given stays as it is.

    `parameters`: those of :func:`policy_options`. `policy` may have settings of its own behind a colon.
    """
    from ejbd.sim.settings import differing, words_of

    if words.get("default_memory") and not words.get("memory"):
        raise EjbError(Code.INVALID, "--default-memory says nothing without --memory", hint="such as --memory 512M")
    named = words_of(policy)
    given = {key.replace("_", "-"): _word(value) for key, value in words.items() if value is not None}
    theirs = {one.key for one in declared_by(named["policy"]).values()} if named["policy"] in known_policies() else None
    for one in declared_by().values():
        value = parameters.get(one.name, one.simulated_default)
        if theirs is None or one.key in theirs:
            given[one.key] = _word(value)
        elif value != one.simulated_default:
            raise EjbError(Code.INVALID, f"policy {named['policy']} knows no --{one.key}")
    return differing({"policy": named["policy"], **given, **named})


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value.value if isinstance(value, StrEnum) else str(value)


def tell_rows(workload: Workload) -> None:
    """Say on stderr what was changed about the log's rows, and what was left out."""
    for oddity in workload.odd:
        print(f"ejb: {oddity}", file=sys.stderr)


def tell_checked(workload: Workload) -> None:
    """Say on stderr what --check has checked: a run in which it does not hold ends with a fault."""
    print(
        f"ejb: checked after each event of {len(workload)} jobs, and held: no processor was given out twice; no "
        "elastic job was wider, further on, or longer on a subjob than it may be; under easy and ejb no head of the "
        "queue was delayed",
        file=sys.stderr,
    )


def figure(value: Any) -> str:
    """A figure for people."""
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return "" if value is None else str(value)


@contextmanager
def writable(path: str) -> Iterator[TextIO]:
    """A file to write to; `-` is stdout. Raises EjbError where it cannot be."""
    if path == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        with open(path, "w", encoding="utf-8", newline="") as out:
            yield out
    except OSError as error:
        raise EjbError(Code.INVALID, f"{path} cannot be written: {error.strerror}") from error
