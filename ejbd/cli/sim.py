"""`ejb sim`: the simulator. It needs no daemon; what it needs is imported by the commands, not by `ejb`."""

from __future__ import annotations

import importlib.util
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ejbd.cli import sim_live, sim_replay
from ejbd.cli.options import AsJson, MaybeFloat, MaybeInt, MaybeText, output
from ejbd.errors import Code, EjbError

if TYPE_CHECKING:
    from ejbd.sim.settings import Setting, Source

sim_app = typer.Typer(help="Simulate workload logs with the very scheduler that runs live.", no_args_is_help=True)


@sim_app.callback()
def sim() -> None:
    """Simulate workload logs with the very scheduler that runs live."""
    if importlib.util.find_spec("numpy") is None:
        raise EjbError(Code.UNSUPPORTED, "the simulator needs numpy", hint="pip install 'ejb[sim]'")


class PolicyName(StrEnum):
    easy = "easy"
    conservative = "conservative"
    fcfs = "fcfs"
    ejb = "ejb"


class TiesName(StrEnum):
    paper = "paper"
    pyss = "pyss"
    batch = "batch"


class TrimName(StrEnum):
    none = "none"
    paper = "paper"


class OrderName(StrEnum):
    arrival = "arrival"
    least_work = "least-work"


class RuleName(StrEnum):
    pyss = "pyss"
    clean = "clean"


class ModelName(StrEnum):
    lublin = "lublin"
    uniform = "uniform"
    bursty = "bursty"


class KindName(StrEnum):
    run = "run"
    target = "target"


class Through(StrEnum):
    sbatch = "sbatch"
    ejb = "ejb"


Trace = Annotated[Path, typer.Argument(help="A workload log (SWF; plain, .gz or .xz).")]
Traces = Annotated[list[Path], typer.Argument(help="Workload logs (SWF; plain, .gz or .xz).")]
Procs = Annotated[MaybeInt, typer.Option("--procs", help="Processors of the cluster; without, MaxProcs of the header.")]
Limit = Annotated[MaybeInt, typer.Option("--limit", min=1, help="Only the first so many rows.")]
Rule = Annotated[RuleName, typer.Option("--rows", help="How rows become jobs: as pyss does, or bad rows left out.")]
TiesOption = Annotated[TiesName, typer.Option("--ties", help="What comes first at one time.")]
Trim = Annotated[TrimName, typer.Option("--trim", help="paper: means without the first 1 % and what ends last.")]
Omax = Annotated[int, typer.Option("--omax", min=1, help="Highest degree of over-subscription.")]
Lambda = Annotated[float, typer.Option("--lambda", min=0, help="What a migration takes, in seconds (inf: never).")]
Delta = Annotated[float, typer.Option("--delta", min=0.01, help="Penalty factor of over-subscription.")]
Suspend = Annotated[bool, typer.Option("--suspend", help="Use slots that are too short, and go back to waiting.")]
OrderOption = Annotated[OrderName, typer.Option("--order", help="Who looks for slots first.")]
Whole = Annotated[bool, typer.Option("--whole-slots", help="Take all of a slot, not the fewest processors.")]
Act = Annotated[bool, typer.Option("--act-in-migration", help="Look for more while a migration is under way.")]
MinLeft = Annotated[float, typer.Option("--min-left", min=0, help="No move when less than this is left, in seconds.")]
CancelJ0 = Annotated[bool, typer.Option("--cancel-j0", help="Cancel J0 once a subjob carries the job to its end.")]
Check = Annotated[bool, typer.Option("--check", help="Check the invariants after every event.")]
Arrivals = Annotated[float, typer.Option("--arrivals", min=0.001, help="Jobs arrive that many times as fast.")]


def _source(trace: Path, procs: int | None, limit: int | None, rule: RuleName) -> Source:
    from ejbd.sim.settings import Source
    from ejbd.sim.workload import RowRule

    return Source(trace, procs, RowRule(rule.value), limit)


def _setting(policy: PolicyName, **words: Any) -> Setting:
    """The setting that the options describe; what is not given stays as it is."""
    from ejbd.sim.settings import differing

    given = {key.replace("_", "-"): _word(value) for key, value in words.items() if value is not None}
    given["lambda"] = given.pop("lambda-s", "120")
    return differing({"policy": policy.value, **given})


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value.value if isinstance(value, StrEnum) else str(value)


@sim_app.command("run")
def run(
    trace: Trace,
    procs: Procs = None,
    policy: Annotated[PolicyName, typer.Option("--policy", help="The scheduler.")] = PolicyName.ejb,
    ties: TiesOption = TiesName.paper,
    limit: Limit = None,
    trim: Trim = TrimName.none,
    rule: Rule = RuleName.pyss,
    omax: Omax = 8,
    lambda_s: Lambda = 120.0,
    delta: Delta = 1.0,
    min_procs: Annotated[int, typer.Option("--min-procs", min=1, help="Narrower jobs stay rigid.")] = 8,
    suspend: Suspend = False,
    order: OrderOption = OrderName.arrival,
    whole_slots: Whole = False,
    act_in_migration: Act = False,
    min_left: MinLeft = 0.0,
    cancel_j0: CancelJ0 = False,
    arrivals: Arrivals = 1.0,
    check: Check = False,
    json_file: Annotated[
        MaybeText, typer.Option("--json", metavar="FILE", help="The figures as JSON; - is stdout.")
    ] = None,
    jobs_csv: Annotated[MaybeText, typer.Option("--jobs-csv", metavar="FILE", help="A line for each job.")] = None,
) -> None:
    """Simulate a log under one policy."""
    from ejbd.sim.report import write_jobs_csv
    from ejbd.sim.settings import play

    setting = _setting(
        policy, ties=ties, trim=trim, omax=omax, lambda_s=lambda_s, delta=delta, min_procs=min_procs, suspend=suspend,
        order=order, whole_slots=whole_slots, act_in_migration=act_in_migration, min_left=min_left, cancel_j0=cancel_j0,
        arrivals=arrivals,
    )  # fmt: skip
    workload, outcome, report = play(_source(trace, procs, limit, rule), setting, checking=check)
    _tell_faults(workload.faults)
    if jobs_csv is not None:
        with _writable(jobs_csv) as out:
            write_jobs_csv(out, workload, outcome, setting.policy)
    if json_file == "-":
        print(json.dumps(report))
        return
    if json_file is not None:
        with _writable(json_file) as out:
            out.write(json.dumps(report, indent=2) + "\n")
    out_rows = [[key, _figure(value)] for key, value in report.items() if not isinstance(value, dict)]
    for name in ("elastic", "non_elastic"):
        for key, value in report.get(name, {}).items():
            out_rows.append([f"{name} {key}", _figure(value)])
    output(False, False).table(["FIGURE", "VALUE"], out_rows, frozenset({1}))


@sim_app.command("target")
def target(
    trace: Trace,
    procs: Procs = None,
    ties: TiesOption = TiesName.paper,
    limit: Limit = None,
    trim: Trim = TrimName.paper,
    rule: Rule = RuleName.pyss,
    omax: Omax = 8,
    lambda_s: Lambda = 120.0,
    delta: Delta = 1.0,
    min_procs: Annotated[int, typer.Option("--min-procs", min=1, help="Narrower jobs are no targets.")] = 9,
    suspend: Suspend = False,
    whole_slots: Whole = False,
    act_in_migration: Act = False,
    min_left: MinLeft = 0.0,
    cancel_j0: CancelJ0 = False,
    every: Annotated[int, typer.Option("--every", min=1, help="Only one in so many targets.")] = 1,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Simulate each eligible job as the only elastic one, and compare with EASY (the paper's Tables 3 and 4)."""
    from ejbd.sim.settings import play_targets

    setting = _setting(
        PolicyName.ejb, ties=ties, trim=trim, omax=omax, lambda_s=lambda_s, delta=delta, min_procs=min_procs,
        suspend=suspend, whole_slots=whole_slots, act_in_migration=act_in_migration, min_left=min_left,
        cancel_j0=cancel_j0,
    )  # fmt: skip
    if ties is TiesName.batch:
        raise EjbError(Code.INVALID, "targets are simulated with paper or pyss ties", hint="leave --ties batch out")
    report = play_targets(_source(trace, procs, limit, rule), setting, every=every, checking=check)
    rows = [[key, _figure(value)] for key, value in report.items() if not isinstance(value, dict)]
    out = output(as_json, False)
    out.result(report, lambda: out.table(["FIGURE", "VALUE"], rows, frozenset({1})))


@sim_app.command("compare")
def compare(
    trace: Trace,
    settings: Annotated[
        list[str], typer.Argument(metavar="POLICY[:KEY=VALUE,...]...", help="E.g. easy ejb ejb:omax=16,suspend.")
    ],
    procs: Procs = None,
    ties: TiesOption = TiesName.paper,
    limit: Limit = None,
    trim: Trim = TrimName.none,
    rule: Rule = RuleName.pyss,
    as_json: AsJson = False,
) -> None:
    """Simulate a log under several settings; changes are against the first."""
    from ejbd.sim.settings import Setting, parse_setting, play

    base = Setting().having({"ties": ties.value, "trim": trim.value})
    reports = []
    for text in settings:
        setting = parse_setting(text, base)
        _, _, report = play(_source(trace, procs, limit, rule), setting)
        reports.append({"setting": text, **report})
    keys = ("mean_wait_s", "mean_turnaround_s", "mean_bounded_slowdown", "idle_procs_while_queued", "utilization")
    rows = []
    for report in reports:
        first, own = reports[0]["mean_turnaround_s"], report["mean_turnaround_s"]
        change = f"{100 * (own / first - 1):+.1f} %" if first else ""
        rows.append([report["setting"], *(_figure(report[key]) for key in keys), change])
    head = ["SETTING", "WAIT", "TURNAROUND", "SLOWDOWN", "IDLE", "UTILIZATION", "CHANGE"]
    out = output(as_json, False)
    out.result(reports, lambda: out.table(head, rows, frozenset(range(1, 7))))


@sim_app.command("sweep")
def sweep(
    traces: Traces,
    out_dir: Annotated[Path, typer.Option("--out", help="For the results; one that was interrupted goes on.")],
    axis: Annotated[
        list[str], typer.Option("--vary", metavar="KEY=VALUE,...", help="E.g. omax=2,4,8; several make a grid.")
    ],
    procs: Procs = None,
    limit: Limit = None,
    rule: Rule = RuleName.pyss,
    ties: TiesOption = TiesName.paper,
    trim: Trim = TrimName.paper,
    policy: Annotated[PolicyName, typer.Option("--policy", help="The scheduler.")] = PolicyName.ejb,
    kind: Annotated[
        KindName, typer.Option("--kind", help="All jobs at once, or one elastic job a simulation.")
    ] = KindName.run,
    cores: Annotated[int, typer.Option("--cores", min=1, help="Simulations at one time.")] = 1,
    part: Annotated[str, typer.Option("--part", metavar="K/N", help="Only the K-th of N parts.")] = "1/1",
    submit: Annotated[Optional[Through], typer.Option("--submit", help="As batch jobs, one for each part.")] = None,  # noqa: UP045
    parts: Annotated[int, typer.Option("--parts", min=1, help="With --submit: how many.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Simulate a grid of settings."""
    from ejbd.sim import sweep as sweeps

    axes: dict[str, list[str]] = {}
    for text in axis:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise EjbError(Code.INVALID, f"--vary {text} is not KEY=VALUE,...", hint="e.g. --vary omax=2,4,8")
        axes[key] = values.split(",")
    base = _setting(policy, ties=ties, trim=trim, min_procs=9 if kind is KindName.target else None)
    sources = [_source(trace, procs, limit, rule) for trace in traces]
    points = list(sweeps.grid(sources, base, axes, sweeps.Kind(kind.value)))
    if submit is not None:
        words = _without_submission(sys.argv[1:])
        for said in sweeps.submit(words, out_dir, parts, submit.value):
            print(said)
        return
    results = _sweep_with_bar(points, out_dir, cores, sweeps.parse_part(part))
    head = ["TRACE", "SETTING", "TURNAROUND", "CHANGE"]
    rows = []
    for row in results:
        after = row.get("after", row)
        change = row.get("turnaround_change_percent")
        shown = "" if change is None else f"{change:+.1f} %"
        rows.append([row["trace"], row["setting"], _figure(after["mean_turnaround_s"]), shown])
    out = output(as_json, False)
    out.result(results, lambda: out.table(head, rows, frozenset({2, 3})))


def _without_submission(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("--submit", "--parts", "--part"):
            skip = True
        elif not word.startswith(("--submit=", "--parts=", "--part=")):
            kept.append(word)
    return kept


def _sweep_with_bar(points: list[Any], folder: Path, cores: int, part: tuple[int, int]) -> list[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    from ejbd.sim.sweep import sweep as play_all

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulations", total=None)

        def tell(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name or "simulations")

        return play_all(points, folder, workers=cores, part=part, tell=tell)


@sim_app.command("generate")
def generate(
    out_file: Annotated[Path, typer.Argument(metavar="FILE", help="The log to write (.gz and .xz are compressed).")],
    model: Annotated[
        ModelName, typer.Option("--model", help="Lublin & Feitelson's, or a plain one.")
    ] = ModelName.lublin,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many.")] = 5000,
    procs: Annotated[int, typer.Option("--procs", min=1, help="Processors of the cluster.")] = 128,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, another log.")] = 1,
    load: Annotated[MaybeFloat, typer.Option("--load", help="Stretch arrivals to this share of the cluster.")] = None,
    overestimate: Annotated[float, typer.Option("--overestimate", min=1, help="Requested over run time.")] = 5.0,
) -> None:
    """Write a synthetic log."""
    from ejbd.sim.models import Model
    from ejbd.sim.models import generate as make
    from ejbd.sim.swf import write_swf

    log = make(Model(model.value), jobs=jobs, processors=procs, seed=seed, load=load, overestimate=overestimate)
    try:
        write_swf(out_file, log)
    except OSError as error:
        raise EjbError(Code.INVALID, f"{out_file} cannot be written: {error.strerror}") from error
    print(f"{out_file}: {len(log)} jobs")


@sim_app.command("reproduce")
def reproduce(
    what: Annotated[str, typer.Argument(metavar="sc15", help="Liu & Weissman, SC'15.")],
    traces: Annotated[Path, typer.Option("--traces", help="Folder with the four logs.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Tables and figures go here.")],
    limit: Limit = None,
) -> None:
    """Make every table and figure of the paper's evaluation, the paper's values beside ours."""
    from ejbd.sim.reproduce import reproduce_sc15

    if what != "sc15":
        raise EjbError(Code.INVALID, f"{what!r} is not known here", hint="the paper that can be reproduced is sc15")
    for path in reproduce_sc15(
        traces, out_dir, limit=limit, tell=lambda text: print(text, file=sys.stderr, flush=True)
    ):
        print(path)


sim_app.command("replay")(sim_replay.replay)
sim_app.command("live")(sim_live.live)


def _tell_faults(faults: tuple[Any, ...]) -> None:
    for fault in faults[:10]:
        print(f"ejb: {fault}", file=sys.stderr)
    if len(faults) > 10:
        print(f"ejb: and {len(faults) - 10} more rows", file=sys.stderr)


def _writable(path: str) -> Any:
    try:
        return open(path, "w", encoding="utf-8", newline="")
    except OSError as error:
        raise EjbError(Code.INVALID, f"{path} cannot be written: {error.strerror}") from error


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return "" if value is None else str(value)
