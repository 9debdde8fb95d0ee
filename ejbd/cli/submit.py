"""`ejb submit`."""

from __future__ import annotations

import os
import resource
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ejbd.cli import completion, following, sbatchwords, showing
from ejbd.cli.client import segment
from ejbd.cli.options import AsJson, MaybeText, Quiet, client, output
from ejbd.cli.output import Output, printable
from ejbd.errors import Code, EjbError

_LARGEST_SCRIPT = 16 * 1024 * 1024
_IS_COMMAND = "ejb.is_command"
_STRAYED = "ejb.strayed"
_LIMITS = ("cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as")


class SubmitCommand(TyperCommand):
    """Takes every option of sbatch, and knows whether a `--` stood before the words, which makes them a command."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        known = sbatchwords.Known(self.params)
        given = sbatchwords.translated(args, known)
        rest = super().parse_args(ctx, list(given))
        words = list(ctx.params.get("words") or [])
        before = given[: len(given) - len(words)]
        ctx.meta[_IS_COMMAND] = bool(before) and before[-1] == "--"
        ctx.meta[_STRAYED] = None if ctx.meta[_IS_COMMAND] else sbatchwords.behind_the_script(words[1:], known)
        return rest


def submit(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT [ARGS]... | -- COMMAND [ARGS]...",
            help="An sbatch script as it is (`-`: from standard input), or a command to be started on every rank.",
        ),
    ] = None,
    ntasks: Annotated[int | None, typer.Option("-n", "--ntasks", help="Processes (ranks).")] = None,
    nodes: Annotated[int | None, typer.Option("-N", "--nodes", help="Nodes.")] = None,
    ntasks_per_node: Annotated[int | None, typer.Option("--ntasks-per-node", help="Processes on each node.")] = None,
    time: Annotated[MaybeText, typer.Option("-t", "--time", help="Walltime, as sbatch takes it.")] = None,
    partition: Annotated[
        MaybeText, typer.Option("-p", "--partition", "--queue", help="Queue.", autocompletion=completion.queues)
    ] = None,
    name: Annotated[MaybeText, typer.Option("-J", "--job-name", help="Name.")] = None,
    account: Annotated[MaybeText, typer.Option("-A", "--account", help="Account.")] = None,
    qos: Annotated[MaybeText, typer.Option("-q", "--qos", help="Quality of service.")] = None,
    stdout: Annotated[MaybeText, typer.Option("-o", "--output", help="File of standard output.")] = None,
    stderr: Annotated[MaybeText, typer.Option("-e", "--error", help="File of standard error.")] = None,
    chdir: Annotated[MaybeText, typer.Option("-D", "--chdir", help="Working directory.")] = None,
    export: Annotated[
        MaybeText, typer.Option("--export", help="Environment: ALL, NONE, or NAME,NAME=value,...")
    ] = None,
    elastic: Annotated[
        MaybeText,
        typer.Option(
            "--elastic", metavar="on|off|auto", help="auto: as the queue says.", autocompletion=completion.elasticities
        ),
    ] = None,
    engine: Annotated[
        MaybeText,
        typer.Option(
            "--engine",
            metavar="auto|application|dmtcp|none",
            help="Checkpoint engine.",
            autocompletion=completion.engines,
        ),
    ] = None,
    mpi: Annotated[
        MaybeText,
        typer.Option(
            "--mpi",
            metavar="auto|mpich|openmpi|none|PROFILE",
            help="Wire-up of the ranks.",
            autocompletion=completion.mpis,
        ),
    ] = None,
    omax: Annotated[int | None, typer.Option("--omax", help="Most ranks on a processor.")] = None,
    lambda_s: Annotated[float | None, typer.Option("--lambda", help="Seconds that a move costs.")] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="Overhead of over-subscription.")] = None,
    checkpoint: Annotated[
        MaybeText, typer.Option("--checkpoint", metavar="off|auto|SECONDS", help="Checkpoints against lost nodes.")
    ] = None,
    restartable: Annotated[
        bool | None, typer.Option("--restartable/--no-restartable", help="The script may be started again.")
    ] = None,
    hold: Annotated[bool, typer.Option("-H", "--hold", help="Do not start until `ejb release`.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option("-O", "--option", help="An option of sbatch in one word (--mem=4G alone does, too)."),
    ] = None,
    idempotency_key: Annotated[
        MaybeText, typer.Option("--idempotency-key", help="Submitting again with the same key gives the same job.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and why.")] = False,
    wait: Annotated[bool, typer.Option("-W", "--wait", help="Wait for the end; exit as the job does.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Submit a job: an sbatch script as it is, or a command."""
    out = output(as_json, quiet)
    overrides = {
        "ntasks": ntasks,
        "nodes": nodes,
        "ntasks_per_node": ntasks_per_node,
        "time": time,
        "name": name,
        "partition": partition,
        "account": account,
        "qos": qos,
        "output": stdout,
        "error": stderr,
        "chdir": chdir,
        "export": export,
        "elastic": elastic,
        "engine": engine,
        "mpi": mpi,
        "omax": omax,
        "lambda_s": lambda_s,
        "delta": delta,
        "checkpoint": checkpoint,
        "restartable": restartable,
        "hold": hold or None,
        "options": option or None,
    }
    body: dict[str, Any] = {
        "cwd": _cwd(),
        "env": _environment(out),
        "overrides": {key: value for key, value in overrides.items() if value is not None},
        **_work(words or [], bool(context.meta.get(_IS_COMMAND))),
        **_surroundings(),
    }
    if strayed := context.meta.get(_STRAYED):
        script = (words or [""])[0]
        out.note(f"{strayed} stands behind {script} and goes to it; options of ejb stand before the script's name")
    daemon = client(context)
    if dry_run:
        plan = daemon.request("POST", "/v1/jobs/plan", body=body).json()
        out.result(plan, lambda: showing.plan(plan, out), quiet="elastic" if plan["elastic"] else "passed-through")
        return
    key = idempotency_key or f"ejb-{uuid.uuid4()}"
    job = daemon.request_repeatedly("POST", "/v1/jobs", body=body, key=key).json()
    for note in job["notes"]:
        out.note(note)
    if not wait:
        out.result(job, lambda: out.line(f"Submitted job {job['id']}"), quiet=job["id"])
        out.note(_carried(job))
        return
    out.note(f"submitted job {job['id']}, {_carried(job)}")
    try:
        for _ in following.events(daemon, job["id"], out):
            pass
        detail = daemon.get(f"/v1/jobs/{segment(job['id'])}")
    except KeyboardInterrupt:
        raise typer.Exit(following.left_running(out, job["id"])) from None
    out.result(detail, lambda: out.line(showing.outcome(detail)), quiet=job["id"])
    raise typer.Exit(following.exit_code(detail))


def _work(words: list[str], is_command: bool) -> dict[str, Any]:
    if is_command:
        return {"command": words}
    if not words or words[0] == "-":
        if not words and sys.stdin.isatty():
            hint = "ejb submit SCRIPT, or ejb submit -n 16 -t 10 -- ./app args"
            raise EjbError(Code.INVALID, "neither a script nor a command is given", hint=hint)
        return {"script": _text(sys.stdin.buffer.read(_LARGEST_SCRIPT + 1), "-"), "args": words[1:]}
    path = _found(words[0])
    try:
        if path.is_dir():
            raise EjbError(Code.INVALID, "a directory is not a script", where=words[0])
        with path.open("rb") as file:
            data = file.read(_LARGEST_SCRIPT + 1)
    except OSError as error:
        raise EjbError(Code.INVALID, f"cannot read the script: {error.strerror}", where=words[0]) from None
    except ValueError as error:  # a NUL in the name
        raise EjbError(Code.INVALID, f"this is not the name of a file: {error}", where=ascii(words[0])) from None
    work = {"script": _text(data, words[0]), "script_name": path.name, "args": words[1:]}
    try:
        absolute = os.path.abspath(path)  # noqa: PTH100  # a link's own name is what its user knows it by
        absolute.encode()
    except (OSError, UnicodeEncodeError):
        return work
    return {**work, "script_path": absolute}


def _found(word: str) -> Path:
    """The file of a script: as sbatch finds it, on PATH too where it is not here."""
    if "/" in word or Path(word).exists():
        return Path(word)
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return next((path for folder in folders if folder and (path := Path(folder, word)).is_file()), Path(word))


def _carried(job: dict[str, Any]) -> str:
    """Whether the job is elastic, and why."""
    how = "elastic" if job["elastic"] else "passed through as an ordinary job"
    return printable(f"{how}: {job['why']}" if job["why"] else how)


def _surroundings() -> dict[str, Any]:
    """The umask and the resource limits that sbatch would hand on."""
    mask = os.umask(0o077)
    os.umask(mask)
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0] for name in _LIMITS}
    return {"umask": mask, "limits": limits}


def _text(data: bytes, where: str) -> str:
    if len(data) > _LARGEST_SCRIPT:
        hint = "a script starts programs; leave data in files of their own"
        raise EjbError(Code.TOO_LARGE, f"a script of more than {_LARGEST_SCRIPT >> 20} MiB", where=where, hint=hint)
    if b"\0" in data:
        hint = f"run a program by: ejb submit -n 16 -t 10 -- {where}"
        raise EjbError(Code.INVALID, "this is not a script but a binary file", where=where, hint=hint)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        hint = f"convert it: iconv -f LATIN1 -t UTF-8 {where}"
        raise EjbError(Code.INVALID, f"line {line} is not UTF-8", where=where, hint=hint) from None


def _cwd() -> str:
    try:
        found = os.getcwd()  # noqa: PTH109  # a string is what is sent
        found.encode()
    except FileNotFoundError:
        raise EjbError(Code.INVALID, "the working directory was deleted", hint="cd to one that is there") from None
    except UnicodeEncodeError:
        raise EjbError(Code.INVALID, "the working directory's name is not UTF-8", hint="rename it") from None
    return found


def _environment(out: Output) -> dict[str, str]:
    """The environment, but for what JSON cannot hold and what is not for others to know."""
    found: dict[str, str] = {}
    coerced = _coerced_by_python()
    for name, value in os.environ.items():
        if name in coerced:
            continue
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            out.note(f"the variable {name!a} is left out: it is not UTF-8")
            continue
        if not name.startswith("EJB_"):
            found[name] = value
    return found


def _coerced_by_python() -> set[str]:
    """LC_CTYPE, where it is not the user's: Python sets it for itself in a locale that is not UTF-8 (PEP 538)."""
    try:
        given = Path("/proc/self/environ").read_bytes()
    except OSError:
        return set()
    return set() if b"\0LC_CTYPE=" in b"\0" + given else {"LC_CTYPE"}
