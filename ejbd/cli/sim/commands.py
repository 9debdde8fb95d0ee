"""`ejb sim`: the simulator. It needs no daemon; what it needs is imported by the commands, not by `ejb`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybeFloat, MaybeInt, MaybePath, MaybeText, output
from ejbd.cli.output import json_text
from ejbd.cli.sim import comparing as sim_compare
from ejbd.cli.sim import fitting as sim_fit
from ejbd.cli.sim import live as sim_live
from ejbd.cli.sim import replaying as sim_replay
from ejbd.cli.sim import sweeping as sim_sweep
from ejbd.cli.sim import valuing as sim_value
from ejbd.cli.sim import workflows as sim_workflow
from ejbd.cli.sim.evolving import tell_worth
from ejbd.cli.sim.options import (
    Arrivals,
    CancelJ0,
    Check,
    DefaultMemory,
    ElasticJobs,
    ElasticShare,
    ElasticUsers,
    Fold,
    Limit,
    Memory,
    ModelName,
    OneNode,
    PolicyOption,
    Poll,
    Procs,
    Reshape,
    ReshapeMost,
    Rule,
    RuleName,
    Seed,
    TiesName,
    TiesOption,
    Trace,
    Trim,
    TrimName,
    figure,
    setting_of,
    source_of,
    tell_checked,
    tell_rows,
    writable,
)
from ejbd.cli.sim.policy_options import policy_options
from ejbd.cli.sim.progress import shown
from ejbd.errors import Code, EjbError

LONG_S = 10.0  # an interpreted simulation that takes longer is worth a hint

sim_app = typer.Typer(help="Simulate workload logs with the very scheduler that runs live.", no_args_is_help=True)


@sim_app.callback()
def sim() -> None:
    """Simulate workload logs with the very scheduler that runs live."""
    if importlib.util.find_spec("numpy") is None:
        raise EjbError(Code.UNSUPPORTED, "the simulator needs numpy", hint="pip install 'ejb[sim]'")


@sim_app.command("run")
@policy_options()
def run(
    trace: Trace,
    procs: Procs = None,
    policy: PolicyOption = "ejb",
    ties: TiesOption = TiesName.paper,
    limit: Limit = None,
    trim: Trim = TrimName.none,
    rule: Rule = RuleName.archive,
    min_procs: Annotated[
        MaybeInt, typer.Option("--min-procs", min=1, help="Keep narrower jobs rigid (8; 1 under fcfs-malleable).")
    ] = None,
    cancel_j0: CancelJ0 = False,
    fold: Fold = False,
    one_node: OneNode = None,
    memory: Memory = None,
    default_memory: DefaultMemory = None,
    elastic_share: ElasticShare = 1.0,
    seed: Seed = 1,
    elastic_users: ElasticUsers = None,
    elastic_jobs: ElasticJobs = None,
    arrivals: Arrivals = 1.0,
    poll: Poll = 0.0,
    reshape: Reshape = None,
    reshape_most: ReshapeMost = None,
    check: Check = False,
    evolving_share: Annotated[
        MaybeFloat,
        typer.Option(
            "--evolving-share",
            min=0,
            max=1,
            metavar="S",
            help="Give this share of the wide jobs evolving profiles, "
            "by lot, and set them beside rigid jobs and bundling (docs/evolving.md).",
        ),
    ] = None,
    json_file: Annotated[
        MaybeText, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is stdout.")
    ] = None,
    jobs_csv: Annotated[
        MaybeText, typer.Option("--jobs-csv", metavar="FILE", help="Write a line for each job; - is stdout.")
    ] = None,
    **parameters: Any,
) -> None:
    """Simulate a log under one policy."""
    from ejbd.sim.report import write_jobs_csv
    from ejbd.sim.settings import play

    if json_file == jobs_csv == "-":
        raise EjbError(Code.INVALID, "--json - and --jobs-csv - are both stdout", hint="give one of them a file")
    setting = setting_of(
        policy, parameters, ties=ties, trim=trim, min_procs=min_procs, cancel_j0=cancel_j0, fold=fold,
        one_node=one_node, arrivals=arrivals, poll=poll, elastic_share=elastic_share, seed=seed,
        elastic_users=elastic_users, elastic_jobs=elastic_jobs, memory=memory, default_memory=default_memory,
        reshape=reshape, reshape_most=reshape_most,
    )  # fmt: skip
    if evolving_share is not None:
        if jobs_csv is not None or check:
            what = "--evolving-share plays the log in several ways, of which --jobs-csv and --check know nothing"
            raise EjbError(Code.INVALID, what)
        tell_worth(source_of(trace, procs, limit, rule), setting, evolving_share, json_file)
        return
    with shown():
        workload, outcome, report = play(source_of(trace, procs, limit, rule), setting, checking=check)
    tell_rows(workload)
    if check:
        tell_checked(workload)
    if not outcome.compiled:
        tell_compiler(outcome.elapsed_s)
    if jobs_csv is not None:
        with writable(jobs_csv) as out:
            write_jobs_csv(out, workload, outcome, setting.policy)
    if json_file is not None:
        with writable(json_file) as out:
            out.write(json_text(report, indent=None if json_file == "-" else 2) + "\n")
    if "-" in (json_file, jobs_csv):
        return
    out_rows = [[key, figure(value)] for key, value in report.items() if not isinstance(value, dict)]
    for name in ("elastic", "non_elastic"):
        for key, value in report.get(name, {}).items():
            out_rows.append([f"{name} {key}", figure(value)])
    output(False, False).table(["FIGURE", "VALUE"], out_rows, frozenset({1}))


@sim_app.command("target")
@policy_options()
def target(
    trace: Trace,
    procs: Procs = None,
    ties: TiesOption = TiesName.paper,
    limit: Limit = None,
    trim: Trim = TrimName.paper,
    rule: Rule = RuleName.archive,
    min_procs: Annotated[int, typer.Option("--min-procs", min=1, help="Take no narrower jobs as targets.")] = 9,
    cancel_j0: CancelJ0 = False,
    one_node: OneNode = None,
    memory: Memory = None,
    default_memory: DefaultMemory = None,
    elastic_share: ElasticShare = 1.0,
    seed: Seed = 1,
    elastic_users: ElasticUsers = None,
    elastic_jobs: ElasticJobs = None,
    reshape: Reshape = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Play only one in so many targets.")] = 1,
    check: Check = False,
    as_json: AsJson = False,
    **parameters: Any,
) -> None:
    """Simulate each eligible job as the only elastic one, and compare with EASY (the paper's Tables 3 and 4)."""
    from ejbd.sim.settings import play_targets

    setting = setting_of(
        "ejb", parameters, ties=ties, trim=trim, min_procs=min_procs, cancel_j0=cancel_j0, one_node=one_node,
        elastic_share=elastic_share, seed=seed, elastic_users=elastic_users, elastic_jobs=elastic_jobs,
        memory=memory, default_memory=default_memory, reshape=reshape,
    )  # fmt: skip
    if ties is TiesName.batch:
        raise EjbError(Code.INVALID, "targets are simulated with paper or pyss ties", hint="leave --ties batch out")
    with shown():
        workload, report = play_targets(source_of(trace, procs, limit, rule), setting, every=every, checking=check)
    tell_rows(workload)
    if check:
        tell_checked(workload)
    rows = [[key, figure(value)] for key, value in report.items() if not isinstance(value, dict)]
    out = output(as_json, False)
    out.result(report, lambda: out.table(["FIGURE", "VALUE"], rows, frozenset({1})))


@sim_app.command("generate")
def generate(
    out_file: Annotated[Path, typer.Argument(metavar="FILE", help="Write the log here (.gz, .xz; - is stdout).")],
    model: Annotated[
        ModelName, typer.Option("--model", help="Take Lublin & Feitelson's model, or a plain one.")
    ] = ModelName.lublin,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Make so many jobs.")] = 5000,
    procs: Annotated[int, typer.Option("--procs", min=1, help="Give the cluster so many processors.")] = 128,
    seed: Annotated[int, typer.Option("--seed", help="Draw by this seed; another one makes another log.")] = 1,
    load: Annotated[MaybeFloat, typer.Option("--load", help="Stretch arrivals to this share of the cluster.")] = None,
    overestimate: Annotated[
        float, typer.Option("--overestimate", min=1, help="Request so many times the run time.")
    ] = 5.0,
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
    print(f"{out_file}: {len(log)} jobs", file=sys.stderr if str(out_file) == "-" else sys.stdout)


def _seeds(words: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(word) for word in words.split(",") if word))
    except ValueError:
        raise EjbError(Code.INVALID, f"{words!r} is no list of seeds", where="--seeds", hint="say 1,2,3") from None


def _folder_of_logs(what: str, traces: Path | None, *, every: bool = False, or_else: str = "") -> Path:
    """The folder of the paper's logs. Raises EjbError, which names the logs, where none is given or what is needed is
    not there; which others are missing is said on stderr."""
    from ejbd.studies.paper.logs import ARCHIVE, logs_in, missing_logs

    if traces is None:
        says = f"{what} is made of the logs {missing_logs(None)}; say in which folder they are"
        raise EjbError(Code.INVALID, says, where="--traces", hint=ARCHIVE + or_else)
    logs_in(traces, every=every)
    if missing := missing_logs(traces):
        print(f"ejb: {traces} has no {missing}: {what} is made without", file=sys.stderr)
    return traces


@sim_app.command("reproduce")
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="sc15|speculative|learned|overhead|guard|evolving|malleable|reshape",
            help="Reproduce Liu & Weissman, SC'15; Gainaru et al., ICPP 2019; walltimes learned as logs are played; "
            "what the paper's algorithm takes by a run time that it knows; the guard over Delta, lambda, start-up; "
            "evolving jobs of Klein & Perez, 2011; Utrera et al., 2012, and folding in place; "
            "reshaped jobs beside over-subscribed ones.",
        ),
    ],
    out_dir: Annotated[Path, typer.Option("--out", help="Write tables and figures here.")],
    traces: Annotated[
        MaybePath, typer.Option("--traces", help="Read the logs in this folder (not: speculative, evolving).")
    ] = None,
    limit: Limit = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Average so many runs (speculative).")] = 50,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Play the first rows of each log (guard: and few cells, of busy logs; reshape)."),
    ] = False,
    workers: Annotated[
        int, typer.Option("--jobs", min=1, help="Run so many simulations at one time (guard, malleable, reshape).")
    ] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="Choose walltimes this way (learned); make this table (reshape). May be given again."
        ),
    ] = None,
    as_reference: Annotated[
        bool,
        typer.Option(
            "--as-reference",
            help="Play by the rule of the reference implementation, not by EJB's own (reshape).",
        ),
    ] = False,
    made: Annotated[
        int, typer.Option("--made", min=0, help="Play so many made-up logs of each model, too (guard).")
    ] = 0,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Play the logs that the guard's constants were chosen on (guard).")
    ] = False,
    turns: Annotated[
        bool, typer.Option("--turns", help="Let J0s stay until their turn while others wait beyond theirs (guard).")
    ] = False,
    floor: Annotated[
        bool, typer.Option("--floor", help="Play plain EASY with something that is only good instead (guard).")
    ] = False,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N,N", help="Make up the logs of these seeds instead (guard).")
    ] = "",
    tests: Annotated[int, typer.Option("--tests", min=1, help="Draw so many tests (evolving).")] = 1000,
) -> None:
    """Make every table and figure of a paper's evaluation, with the paper's values beside ours; or make our own."""
    if what == "speculative":
        from ejbd.studies.speculative.reproduce import reproduce_speculative

        with shown():
            paths = reproduce_speculative(out_dir, runs=runs)
    elif what == "sc15":
        from ejbd.studies.paper.reproduce import reproduce_sc15

        traces = _folder_of_logs(what, traces, every=True)
        with shown():
            paths = reproduce_sc15(traces, out_dir, limit=limit)
    elif what == "learned":
        from ejbd.studies.speculative.learned import reproduce_learned

        traces = _folder_of_logs(what, traces, every=False)
        with shown():
            paths = reproduce_learned(traces, out_dir, limit=limit, only=only or [])
    elif what == "overhead":
        from ejbd.studies.speculative.overhead import reproduce_overhead

        traces = _folder_of_logs(what, traces, every=False)
        with shown():
            paths = reproduce_overhead(traces, out_dir, limit=limit)
    elif what == "guard":
        from ejbd.studies.paper.floor import reproduce_floor
        from ejbd.studies.paper.guard import reproduce_guard
        from ejbd.studies.paper.madeup import JUDGED_SEED, TUNED_SEED, Trial, reproduce_made, seeds_from
        from ejbd.studies.paper.turns import reproduce_turns

        chosen = _seeds(seeds) or seeds_from(TUNED_SEED if tuned else JUDGED_SEED, made)
        if traces is not None or not chosen:
            traces = _folder_of_logs("guard", traces, or_else="; or --made says how many are made up of each model")
        trial = Trial(chosen, turns=turns, quick=quick)
        with shown():
            if floor:
                paths = reproduce_floor(traces, out_dir, trial, limit=limit)
            else:
                paths = reproduce_made(out_dir, trial) if chosen else []
                if traces is not None and turns:
                    paths += reproduce_turns(traces, out_dir, limit=limit)
            for path in paths:
                if path.suffix == ".md":  # to be seen at once: counts, and the worst cells first
                    print(path.read_text(encoding="utf-8"))
            if traces is not None and not (turns or floor):
                paths += reproduce_guard(traces, out_dir, workers=workers, limit=limit, quick=quick)
    elif what == "reshape":
        from ejbd.studies.reshaping.reproduce import TABLES, reproduce_reshape

        traces = _folder_of_logs(what, traces, every=False)
        if unknown := set(only or []) - set(TABLES):
            raise EjbError(Code.INVALID, f"no table is called {min(unknown)}", hint=f"there are {', '.join(TABLES)}")
        with shown():
            paths = reproduce_reshape(
                traces, out_dir, workers=workers, limit=limit, quick=quick, tables=only or [], as_reference=as_reference
            )
    elif what == "malleable":
        from ejbd.studies.malleable.reproduce import reproduce_malleable

        if traces is not None:
            traces = _folder_of_logs(what, traces)
        with shown():
            paths = reproduce_malleable(out_dir, traces, workers=workers, limit=limit)
    elif what == "evolving":
        from ejbd.studies.evolving.reproduce import reproduce_evolving

        with shown():
            paths = reproduce_evolving(out_dir, tests=tests)
    else:
        hint = "there are sc15, speculative, learned, overhead, guard, evolving, malleable and reshape"
        raise EjbError(Code.INVALID, f"{what!r} is not known here", hint=hint)
    for path in paths:
        print(path)


@sim_app.command("compile")
def compile_kernels() -> None:
    """Compile the kernels now, once for each version, so that long simulations begin at full speed."""
    from ejbd.sim.prepare import compile_all

    with shown():
        seconds = compile_all()
    print(f"the kernels are compiled ({seconds:.0f} s)")


sim_app.command("compare")(sim_compare.compare)
sim_app.command("sweep")(sim_sweep.sweep)
sim_app.command("value")(sim_value.value)
sim_app.command("workflow")(sim_workflow.workflow)
sim_app.command("replay")(sim_replay.replay)
sim_app.command("fit")(sim_fit.fit)
sim_app.command("live")(sim_live.live)


def tell_compiler(elapsed_s: float) -> None:
    """A hint after what took long without compiled code."""
    if elapsed_s < LONG_S:
        return
    if importlib.util.find_spec("numba") is None:
        hint = "numba would make it ten times as fast: pip install 'ejb[sim]'"
    else:
        hint = "`ejb sim compile` (under a minute, once) makes it ten times as fast"
    print(f"ejb: this was interpreted; {hint}", file=sys.stderr)


def add_to(app: typer.Typer) -> None:
    app.add_typer(sim_app, name="sim")
