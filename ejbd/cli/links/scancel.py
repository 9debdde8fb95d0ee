"""`scancel` of EJB's jobs; a number that is none of theirs goes to the site's own."""

from __future__ import annotations

import pwd
import re
import sys
from collections.abc import Sequence

from ejbd.cli.links import options, real, squeue, states
from ejbd.cli.links.options import Known
from ejbd.cli.links.rows import Details, Named, Row, is_array, listed, named, rows_of
from ejbd.cli.output import printable, sentences
from ejbd.client.client import Client
from ejbd.client.messages import job_path
from ejbd.errors import Code, EjbError
from ejbd.options.signals import EndSignal
from ejbd.wire.kinds import JobKind
from ejbd.wire.visible import visible

_KNOWN = Known(
    valued={
        "-u": "user", "--user": "user", "-n": "name", "--name": "name", "--jobname": "name", "-t": "states",
        "--state": "states", "-p": "queue", "--partition": "queue", "-s": "signal", "--signal": "signal",
        "-M": "clusters", "--clusters": "clusters", "-A": "account", "--account": "account", "-q": "qos",
        "--qos": "qos", "-w": "nodes", "--nodelist": "nodes", "-R": "reservation", "--reservation": "reservation",
        "--wckey": "wckey",
    },
    flags={
        "--me": "me", "-b": "script", "--batch": "script", "-f": "full", "--full": "full", "-H": "hurry",
        "--hurry": "hurry", "-Q": "quiet", "--quiet": "quiet", "-v": "verbose", "--verbose": "verbose",
        "-V": "version", "--version": "version", "--help": "version", "--usage": "version", "--ctld": "ctld",
        "-i": "asks", "--interactive": "asks",
    },
)  # fmt: skip
_BY_VARIABLE = {
    "SCANCEL_ACCOUNT": "--account", "SCANCEL_BATCH": "--batch", "SCANCEL_FULL": "--full",
    "SCANCEL_INTERACTIVE": "--interactive", "SCANCEL_NAME": "--name", "SCANCEL_PARTITION": "--partition",
    "SCANCEL_QOS": "--qos", "SCANCEL_STATE": "--state", "SCANCEL_USER": "--user", "SCANCEL_VERBOSE": "--verbose",
    "SCANCEL_WCKEY": "--wckey",
}  # fmt: skip
_ENDS = ("KILL", "9")
_STATES = ("PENDING", "RUNNING", "SUSPENDED")
_BY_SLURM = ("states", "name", "account", "qos", "wckey", "nodes", "reservation")
_FILTERS = ("user", "queue", "me", *_BY_SLURM)
_STEP = re.compile(r"(?P<job>[0-9]+(?:_[0-9]+)?)\.(?P<step>[0-9]+|batch|extern)")


def run(words: Sequence[str]) -> int:
    """Cancel, or signal; the exit code. Raises EjbError for an option that it does not know."""
    line = options.read(_KNOWN, options.with_variables(_KNOWN, _BY_VARIABLE, words), "scancel")
    if line.has("version"):
        return real.ask("scancel", words) or 0
    if not line.words and not any(line.has(name) for name in _FILTERS):
        raise EjbError(Code.INVALID, "No job identification provided")
    if "" in line.words:
        raise EjbError(Code.INVALID, "Invalid job id ")
    if (said := _unknown_value(line)) is not None:
        print(said, file=sys.stderr)
        return 1
    wanted = states.read(line.values("states"), "--state") if line.has("states") else None
    daemon = Client()
    parts = [part for word in line.words for part in word.split()]
    steps = [match for word in parts if (match := _STEP.fullmatch(word))]
    if parts:
        found = named(daemon, [word for word in parts if not _STEP.fullmatch(word)], apart=wanted is not None)
        rows = [row for row in found.rows if _fits(row, line)]
    else:
        rows, found = [], Named([], [])
        for job in listed(daemon, None, line):
            rows += rows_of(daemon, job) if wanted is not None else [Row(job, states.word_of(job))]
    if any(line.has(name) for name in _BY_SLURM):
        rows = squeue.select_rows(line, rows, Details(daemon), found.elements, wanted)[0]
    code = 0
    for row in rows:
        if not line.has("asks") or _is_confirmed(row):
            code = _end(daemon, row, line) or code
    for match in steps:
        code = _end_step(daemon, match["job"], match["step"], line) or code
    if found.others:
        code = _of_others(words, found.others, line) or code
    return code


def _unknown_value(line: options.Line) -> str | None:
    """What Slurm's scancel says of a state, a signal or a user that there is not; None where there are all."""
    for state in line.values("states"):
        if state.upper() not in {*_STATES, *(states.SHORT[one] for one in _STATES)}:
            return f"Invalid job state specified: {state}\nValid job states are PENDING, RUNNING, and SUSPENDED"
    signal, user = line.value("signal"), line.value("user")
    try:
        if signal is not None:
            EndSignal.read(signal)
    except ValueError:
        return f"Unknown job signal: {signal}"
    try:
        if user is not None and not user.isdigit():
            pwd.getpwnam(user)
    except KeyError:
        return f"scancel: error: Invalid user name: {user}"
    return None


def _fits(row: Row, line: options.Line) -> bool:
    """Slurm's scancel takes jobs that are named and that fit the filters, too."""
    return all(line.value(key) in (None, row.job[key]) for key in ("user", "queue"))


def _is_confirmed(row: Row) -> bool:
    asked = f"Cancel job_id={row.id} name={visible(row.name)} partition={row.job['queue']} [y/n]? "
    print(asked, end="", flush=True)
    return sys.stdin.readline()[:1].lower() == "y"


def _end_step(daemon: Client, job: str, step: str, line: options.Line) -> int:
    """End a launch, or signal it: of an elastic job the ranks of the one that runs."""
    found = named(daemon, [job], apart=False)
    if not found.rows or not found.rows[0].job["elastic"]:
        return _ask_for(f"{job}.{step}", line)
    row = found.rows[0]
    steps = daemon.get(job_path(row.job["id"]))["steps"]
    runs = step == "batch" or any(str(one["ordinal"]) == step and one["code"] is None for one in steps)
    if not runs or row.state not in states.LIVING:
        print(f"scancel: error: Kill job error on job step id {job}.{step}: Invalid job id specified", file=sys.stderr)
        return 1
    body = {"signal": line.value("signal") or "KILL", "to": "script" if step == "batch" else "ranks"}
    daemon.request("POST", job_path(row.job["id"], "/signal"), body=body)
    return 0


def _end(daemon: Client, row: Row, line: options.Line) -> int:
    signal = (line.value("signal") or "KILL").upper().removeprefix("SIG")
    whole = job_path(row.job["id"])
    of_batch = is_array(row.job) and row.job["kind"] != JobKind.ARRAY
    part = row.index is not None and row.job["array"] is None
    if line.has("verbose"):
        print(f"scancel: Terminating job {row.id}", file=sys.stderr)
    if row.state not in states.LIVING:
        if signal not in _ENDS:
            return _told(line, row.id, "Invalid job id specified", 1)
        return _told(line, row.id, "Job/step already completing or completed", 0)
    try:
        if part and of_batch:
            return _by_the_sites(row, line)
        if signal not in _ENDS:
            body = {"signal": signal, "to": "script" if line.has("script") else "all" if line.has("full") else "ranks"}
            daemon.request("POST", f"{whole}/signal", body=body)
        elif part:
            index = str(row.index)
            daemon.request(
                "POST", job_path(row.job["id"] + "_" + (index if index[0] == "[" else f"[{index}]"), "/cancel")
            )
        else:
            daemon.request("POST", f"{whole}/cancel")
    except EjbError as error:
        if error.code is Code.UNREACHABLE:
            raise
        if error.code is Code.UNSUPPORTED and signal not in _ENDS:
            return _by_the_sites(row, line)
        if error.code is Code.CONFLICT and signal in _ENDS:
            return _told(line, row.id, "Job/step already completing or completed", 0)
        print(f"scancel: error: Kill job error on job id {row.id}: {sentences(error.sentence())}", file=sys.stderr)
        return 1
    return 0


def _by_the_sites(row: Row, line: options.Line) -> int:
    """What the batch system does itself, which has the job by this number.

    Slurm 22.05 cancels all of an array that waits where `--signal KILL` is said of one element.
    """
    return _ask_for(row.id, line)


def _ask_for(id: str, line: options.Line) -> int:
    signal = line.value("signal") or "KILL"
    said = [] if signal.upper().removeprefix("SIG") in _ENDS else ["--signal", signal]
    said += [f"--{name}" for name, typed in (("batch", "script"), ("full", "full")) if line.has(typed)]
    code = real.ask("scancel", [*said, id])
    if code is None:
        raise EjbError(Code.UNSUPPORTED, "the job is passed through, and there is no scancel of the site's on the PATH")
    return code


def _of_others(words: Sequence[str], others: Sequence[str], line: options.Line) -> int:
    code = real.ask("scancel", [*options.without(_KNOWN, words, ""), *others])
    if code is not None:
        return code
    for word in others:
        print(f"scancel: error: Kill job error on job id {printable(word)}: Invalid job id specified", file=sys.stderr)
    return 1


def _told(line: options.Line, id: str, what: str, code: int) -> int:
    if line.has("verbose") or code:
        print(f"scancel: error: Kill job error on job id {id}: {what}", file=sys.stderr)
    return code
