"""`ejb sim live`: a log against a real batch system and a real EJB, beside its simulation."""

from __future__ import annotations

import json
import math
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ejbd.cli.options import MaybeFloat, MaybeInt, MaybeText, client, output
from ejbd.cli.output import Output, json_text
from ejbd.cli.own_daemon import own_daemon
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.release.shipped import EXAMPLES

if TYPE_CHECKING:
    from ejbd.studies.live.batch import BatchRuns
    from ejbd.studies.live.program import Program

WINDOWS = 4  # of a log
BATCHES = {"slurm": "slurm.conf", "openpbs": "bin", "torque": "bin"}  # and where a cluster's folder has it
START_GRACE_POLLS = 10.0  # days are minutes here: a subjob that does not start is not waited for as on a site
PACED, HEAT = EXAMPLES / "paced.c", EXAMPLES / "heat.py"

MaybePath = Optional[Path]  # noqa: UP045  # typer reads these at run time
ManyPaths = Optional[list[Path]]  # noqa: UP045


def live(
    context: typer.Context,
    trace: Annotated[Path, typer.Argument(help="Play this workload log (SWF; plain, .gz or .xz).")],
    scale: Annotated[str, typer.Option("--scale", help="Multiply all times by this, e.g. 1/60.")] = "1/60",
    skip: Annotated[int, typer.Option("--skip", min=0, help="Leave out the first so many jobs.")] = 0,
    limit: Annotated[MaybeInt, typer.Option("--limit", min=1, help="Play only so many jobs.")] = None,
    show: Annotated[
        bool, typer.Option("--pick", help="Only print the windows of the log that the rule picks; play nothing.")
    ] = False,
    window: Annotated[
        MaybeInt, typer.Option("--window", min=1, max=WINDOWS, help="Play this window, in place of --skip and --limit.")
    ] = None,
    within: Annotated[
        float, typer.Option("--within", min=1, help="Pick windows that are over after so many hours of the log.")
    ] = 24.0,
    onto: Annotated[
        MaybeInt, typer.Option("--onto", min=1, help="With --pick: play on a cluster of so many processors.")
    ] = None,
    procs: Annotated[
        MaybeInt,
        typer.Option("--procs", help="Take so many processors for the log's cluster; without, MaxProcs of the header."),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="Play on the batch system alone (easy), or with EJB (ejb).")
    ] = "easy",
    batch: Annotated[str, typer.Option("--batch", help="Play on slurm, openpbs or torque.")] = "slurm",
    cluster: Annotated[
        MaybePath,
        typer.Option(
            "--cluster", help="Play on the cluster in this folder of scripts/cluster; ejb: with an ejbd of its own."
        ),
    ] = None,
    min_procs: Annotated[int, typer.Option("--min-procs", min=1, help="Make jobs of this width and more elastic.")] = 8,
    lambda_s: Annotated[float, typer.Option("--lambda", min=0, help="Plan with a move of so many seconds.")] = 5.0,
    omax: Annotated[int, typer.Option("--omax", min=1, help="Over-subscribe to this degree at most.")] = 8,
    suspend: Annotated[bool, typer.Option("--suspend/--no-suspend", help="Use slots that are too short.")] = True,
    pace: Annotated[
        MaybeFloat, typer.Option("--pace", min=0.001, help="Let a step of the elastic ones take so many seconds.")
    ] = None,
    poll: Annotated[
        float, typer.Option("--poll", min=0.1, help="With --cluster: have the daemon poll after so many seconds.")
    ] = 1.0,
    program: Annotated[
        Path, typer.Option("--program", help="Have elastic jobs run this: paced.c, compiled here, or heat.py.")
    ] = PACED,
    patience: Annotated[
        float, typer.Option("--patience", min=1, help="Wait so many seconds after the last submission.")
    ] = 1800.0,
    shared: Annotated[
        MaybePath, typer.Option("--dir", help="Work in a folder that all nodes see; what is written there stays.")
    ] = None,
    json_file: Annotated[
        MaybeText, typer.Option("--json", metavar="FILE", help="Write the comparison as JSON; - is stdout.")
    ] = None,
    plot: Annotated[MaybePath, typer.Option("--plot", metavar="FILE", help="Write FILE.png, .svg and .pdf.")] = None,
    beside: Annotated[
        ManyPaths, typer.Option("--beside", metavar="FILE", help="Plot another run's JSON beside it; may be repeated.")
    ] = None,
) -> None:
    """Play a log against a real Slurm or PBS (and a real EJB), and compare with its simulation."""
    from ejbd.studies.live.comparison import pooled
    from ejbd.studies.live.figure import draw
    from ejbd.studies.live.program import program_at
    from ejbd.studies.live.run import LiveSetting, live_comparison

    if show:
        _show(trace, procs, onto, min_procs, within)
        return
    if policy not in ("easy", "ejb"):
        raise EjbError(Code.INVALID, f"{policy!r} cannot be played", hint="--policy is easy or ejb")
    elastic = policy == "ejb"
    if program.suffix != ".c" and not program.is_file():
        raise EjbError(Code.INVALID, f"{program} is not there", hint="--program names examples/paced.c or heat.py")
    if batch not in BATCHES:
        raise EjbError(Code.INVALID, f"{batch!r} is not known here", hint=f"--batch is {', '.join(BATCHES)}")
    found = cluster / BATCHES[batch] if cluster is not None else None
    if found is not None and not found.exists():
        what = f"{cluster} is no folder of a running scripts/cluster with --batch {batch}"
        raise EjbError(Code.INVALID, what, where=str(found))
    others = [_read(path) for path in beside or []]
    if json_file not in (None, "-"):
        _write(Path(str(json_file)), "")  # refused now rather than when all has been played
    setting = LiveSetting(
        trace,
        factor(scale),
        skip,
        limit,
        procs,
        window,
        elastic,
        min_procs,
        lambda_s,
        omax,
        suspend,
        poll,
        patience,
        within,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that its jobs are cancelled
    with _folder(shared) as folder:
        runs = program_at(program, HEAT, folder, pace)
        toml = (
            f'{_batch_toml(batch, cluster, folder)}poll_s = {poll}\n[queues.default]\nelasticity = "on"\n'
            f"min_processors = {min_procs}\nlambda_s = {lambda_s}\nomax = {omax}\nsuspend = {str(suspend).lower()}\n"
            f"[limits]\nstart_grace_s = {START_GRACE_POLLS * poll}\n"
        )
        variables = {"SLURM_CONF": str(found)} if batch == "slurm" else {}
        own = own_daemon(folder, toml, variables) if elastic and cluster is not None else nullcontext()
        with own as started:
            daemon = _Rest(started or client(context)) if elastic else None
            told = live_comparison(
                setting, folder, lambda runs: _batch_runs(batch, found, folder, runs), daemon, runs,
                lambda text: print(text, file=sys.stderr),
            )  # fmt: skip
    out = output(False, False)
    if json_file == "-":
        print(json_text(told))
    elif json_file is not None:
        _write(Path(json_file), _lines(told))
    if plot is not None:
        for path in draw(plot, pooled([*others, told])):
            out.note(f"wrote {path}")
    if json_file != "-":
        _table(told, out)


def _batch_runs(batch: str, found: Path | None, folder: Path, program: Program | None) -> BatchRuns:
    from ejbd.studies.live.pbs import PbsRuns
    from ejbd.studies.live.slurm import SlurmRuns

    if batch == "slurm":
        return SlurmRuns(folder, found, program)
    return PbsRuns(folder, batch, found, program)


def _batch_toml(batch: str, cluster: Path | None, folder: Path) -> str:
    """The batch system as the daemon's configuration has it."""
    if cluster is None:
        return ""
    if batch == "slurm":
        return f'batch = "slurm"\nslurm.conf = "{cluster / BATCHES[batch]}"\n'
    listen = ""
    with suppress(OSError, ValueError):  # a cluster of one machine has no such file
        address = json.loads((cluster / "cluster.json").read_text()).get("controller_address")
        listen = f'listen = "{address}:0"\n' if address else ""
    return (
        f'batch = "pbs"\nspool = "{folder / "spool"}"\n{listen}'
        f'pbs.bin = "{cluster / BATCHES[batch]}"\npbs.dialect = "{batch}"\n'
    )


def _show(trace: Path, procs: int | None, onto: int | None, min_procs: int, within_h: float) -> None:
    from ejbd.sim.swf import read_swf
    from ejbd.sim.workload import workload_of
    from ejbd.studies.live.windows import HOUR_S, Rule, on_cluster, pick

    log = workload_of(read_swf(trace), trace.name, processors=procs)
    workload = on_cluster(log, onto or log.processors)
    jobs, rows = workload.jobs, []
    rule = Rule(min_processors=min_procs, end_s=within_h * HOUR_S)
    for number, one in pick(workload, rule).items():
        ours = [*one.waiting.tolist(), *one.arriving.tolist()]
        wide = sum(int(jobs.processors[n]) >= min_procs for n in ours)
        hours = (float(jobs.submit[ours[-1]]) - one.begin_s) / 3600
        first = int(jobs.id[one.arriving[0]])
        rows.append([str(v) for v in (number, first, one.running.size, one.waiting.size, one.arriving.size, wide)])
        rows[-1].append(f"{hours:.1f}")
    heads = ["WINDOW", "FIRST JOB", "RUNNING", "WAITING", "ARRIVING", "ELASTIC", "ARRIVALS (h)"]
    output(False, False).table(heads, rows, frozenset(range(7)))


def factor(text: str) -> float:
    """`1/60` or a plain number; above 0."""
    above, _, below = text.partition("/")
    try:
        value = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        value = 0.0
    if not 0 < value < math.inf:
        raise EjbError(Code.INVALID, f"--scale {text} is no factor above 0", hint="e.g. --scale 1/60")
    return value


class _Rest:
    """The daemon's API for :class:`ejbd.studies.live.ejb.ElasticRuns`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, path: str, **query: Any) -> Any:
        return self._client.get(path, **query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._client.request_repeatedly("POST", path, body=dict(body), key=f"ejb-{uuid.uuid4()}").json()


@contextmanager
def _folder(shared: Path | None) -> Iterator[Path]:
    """The folder that was named, or a temporary one, which only the nodes of a cluster on this machine see."""
    if shared is None:
        with tempfile.TemporaryDirectory(prefix="ejb-live-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    try:
        shared.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EjbError(Code.INVALID, f"{shared} cannot be made: {error.strerror}") from None
    if any(shared.iterdir()):
        raise EjbError(Code.INVALID, f"{shared} is not empty", hint="--dir names a folder of its own for each run")
    yield shared.resolve()


def _read(path: Path) -> Any:
    try:
        found = json.loads(path.read_text())
        return {key: found[key] for key in ("all", "each", "policy", "jobs", "procs")}
    except OSError as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise EjbError(Code.INVALID, f"{path} is not what `ejb sim live --json` writes") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise EjbError(Code.INVALID, f"{path} cannot be written: {error.strerror}") from None


def _lines(told: Mapping[str, Any]) -> str:
    """As JSON with a line for each job, for people and for diff."""
    each = ",\n  ".join(json_text(job) for job in told["each"])
    head = json_text({key: value for key, value in told.items() if key != "each"}, indent=1)
    return f'{head.removesuffix(chr(10) + "}")},\n "each": [\n  {each}\n ]\n}}\n'


def _table(told: Mapping[str, Any], out: Output) -> None:
    rows = []
    for group in ("all", "elastic", "non_elastic"):
        if group not in told:
            continue
        found = told[group]
        for key, name in (("mean_wait_s", "wait"), ("mean_run_s", "run"), ("mean_turnaround_s", "turnaround")):
            error = found["error_percent"][key]
            shown = "" if error is None else f"{error:+.1f} %"
            rows.append([group, name, f"{found['live'][key]:.1f}", f"{found['simulated'][key]:.1f}", shown])
    out.table(["JOBS", "MEAN", "LIVE (s)", "SIMULATED (s)", "ERROR"], rows, frozenset({2, 3, 4}))
    costs = ", ".join(f"{key} {value:.2f}" for key, value in told["overheads"].items() if value is not None)
    out.note(f"measured, and given to the simulation: {costs}")
