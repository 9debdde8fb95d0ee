"""`ejb sim live`: a log against a real batch system and a real EJB, beside its simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ejbd.cli.client import Client
from ejbd.cli.options import AsJson, client, output
from ejbd.cli.output import Output
from ejbd.errors import Code, EjbError

START_S = 60.0
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "heat.py"

MaybePath = Optional[Path]  # noqa: UP045  # typer reads these at run time
MaybeInt = Optional[int]  # noqa: UP045


def live(
    context: typer.Context,
    trace: Annotated[Path, typer.Argument(help="A workload log (SWF; plain, .gz or .xz).")],
    scale: Annotated[str, typer.Option("--scale", help="All times are multiplied by this, e.g. 1/60.")] = "1/60",
    limit: Annotated[MaybeInt, typer.Option("--limit", min=1, help="Only the first so many rows.")] = None,
    procs: Annotated[
        MaybeInt, typer.Option("--procs", help="Processors of the log's cluster; without, MaxProcs of the header.")
    ] = None,
    cluster: Annotated[
        MaybePath, typer.Option("--cluster", help="A folder of scripts/cluster, with an ejbd of its own.")
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="easy: Slurm alone; ejb: with EJB.")] = "easy",
    min_procs: Annotated[int, typer.Option("--min-procs", min=1, help="From this width on a job is elastic.")] = 8,
    lambda_s: Annotated[float, typer.Option("--lambda", min=0, help="What decisions take a move for (s).")] = 5.0,
    omax: Annotated[int, typer.Option("--omax", min=1, help="Highest degree of over-subscription.")] = 8,
    suspend: Annotated[bool, typer.Option("--suspend/--no-suspend", help="Use slots that are too short.")] = True,
    pace: Annotated[float, typer.Option("--pace", min=0.001, help="What a step of the elastic ones takes (s).")] = 0.05,
    poll: Annotated[float, typer.Option("--poll", min=0.1, help="With --cluster: the daemon's poll_s.")] = 1.0,
    program: Annotated[Path, typer.Option("--program", help="What elastic jobs run: the paced example.")] = EXAMPLE,
    patience: Annotated[float, typer.Option("--patience", min=1, help="Seconds after the last submission.")] = 1800.0,
    json_file: Annotated[MaybePath, typer.Option("--out", metavar="FILE", help="Write the comparison as JSON.")] = None,
    plot: Annotated[MaybePath, typer.Option("--plot", metavar="FILE", help="Write FILE.png and FILE.svg.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play a log against a real Slurm with sleeping jobs (and a real EJB), and compare with its simulation."""
    from ejbd.sim.live_figure import draw
    from ejbd.sim.live_run import LiveSetting, live_comparison

    if policy not in ("easy", "ejb"):
        raise EjbError(Code.INVALID, f"{policy!r} cannot be played", hint="--policy is easy or ejb")
    elastic = policy == "ejb"
    if elastic and not program.is_file():
        raise EjbError(Code.INVALID, f"{program} is not there", hint="--program names examples/heat.py")
    setting = LiveSetting(
        trace, _factor(scale), limit, procs, min_procs if elastic else None, lambda_s, omax, suspend, pace, patience
    )
    with tempfile.TemporaryDirectory(prefix="ejb-live-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        conf = cluster / "slurm.conf" if cluster is not None else None
        if conf is not None and not conf.is_file():
            raise EjbError(Code.INVALID, f"{cluster} is no folder of a running scripts/cluster", where=str(conf))
        with _daemon(context, folder, conf, setting, poll) if elastic else _nobody() as daemon:
            told = live_comparison(setting, folder, conf, daemon, program, lambda text: print(text, file=sys.stderr))
    if json_file is not None:
        try:
            json_file.write_text(json.dumps(told, indent=1) + "\n")
        except OSError as error:
            raise EjbError(Code.INVALID, f"{json_file} cannot be written: {error.strerror}") from None
    out = output(as_json, False)
    if plot is not None:
        for path in draw(plot, [told]):
            out.note(f"wrote {path}")
    out.result(told, lambda: _table(told, out))


def _factor(text: str) -> float:
    """`1/60` or a plain number."""
    above, _, below = text.partition("/")
    try:
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise EjbError(Code.INVALID, f"--scale {text} is no factor", hint="e.g. --scale 1/60") from None


class _Rest:
    """The daemon's API for :class:`ejbd.sim.live_ejb.ElasticRuns`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, path: str, **query: Any) -> Any:
        return self._client.get(path, **query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._client.request("POST", path, body=dict(body)).json()


@contextmanager
def _nobody() -> Iterator[None]:
    yield None


@contextmanager
def _daemon(context: typer.Context, folder: Path, conf: Path | None, setting: Any, poll_s: float) -> Iterator[_Rest]:
    """The configured daemon, or one of our own for the cluster in --cluster."""
    if conf is None:
        yield _Rest(client(context))
        return
    config = folder / "ejbd.toml"
    config.write_text(
        f'state_dir = "{folder / "state"}"\nbatch = "slurm"\npoll_s = {poll_s}\nworker_python = "{sys.executable}"\n'
        f'[slurm]\nconf = "{conf}"\n[queues.default]\nelasticity = "on"\nmin_processors = {setting.min_processors}\n'
        f"lambda_s = {setting.lambda_s}\nomax = {setting.omax}\nsuspend = {str(setting.suspend).lower()}\n"
    )
    log = folder / "ejbd.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "ejbd.daemon", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=os.environ | {"SLURM_CONF": str(conf)},
        )
    try:
        own = Client(None, str(folder / "state" / "ejbd.sock"))
        deadline = time.monotonic() + START_S
        while not _answers(own):
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace").strip().splitlines()
                raise EjbError(Code.UNREACHABLE, f"ejbd did not start: {said[-1] if said else 'it said nothing'}")
            time.sleep(0.2)
        yield _Rest(own)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(daemon: Client) -> bool:
    try:
        return bool(daemon.get("/v1/health")["ok"])
    except EjbError:
        return False


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
