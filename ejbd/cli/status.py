"""`ejb status`: jobs in a table, or all about one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ejbd.cli import completion
from ejbd.cli.options import AsJson, MaybeText, Quiet, client, output
from ejbd.cli.output import Output
from ejbd.cli.selecting import ids, names_several, path
from ejbd.cli.show import columns
from ejbd.cli.show import jobs as showing
from ejbd.cli.show.trouble import tell_trouble
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.wire.payloads import JobView
from ejbd.wire.states import LIVING_JOB, TERMINAL_JOB, JobState

# Slurm's words, for fingers that know squeue.
_SLURM = {
    "pending": (JobState.RECEIVED, JobState.WAITING),
    "pd": (JobState.RECEIVED, JobState.WAITING),
    "r": (JobState.RUNNING,),
    "completing": (JobState.ENDING,),
    "cg": (JobState.ENDING,),
    "cd": (JobState.COMPLETED,),
    "f": (JobState.FAILED,),
    "to": (JobState.TIMEOUT,),
    "ca": (JobState.CANCELLED,),
    "living": tuple(state for state in JobState if state in LIVING_JOB),
    "ended": tuple(state for state in JobState if state in TERMINAL_JOB),
}


def status(
    context: typer.Context,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...",
            help="Show all about one job; list several, A..B or `all`. Without any, list yours.",
            autocompletion=completion.jobs,
        ),
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all-users", "-a", help="List all users' jobs (administrators).")
    ] = False,
    user: Annotated[MaybeText, typer.Option("--user", "-u", help="List only jobs of this user.")] = None,
    name: Annotated[MaybeText, typer.Option("--name", "-n", help="List only jobs of this name.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE[,STATE]...",
            help="List only jobs in this state: a word of EJB or of squeue, `living` or `ended`.",
            autocompletion=completion.states,
        ),
    ] = None,
    queue: Annotated[
        MaybeText, typer.Option("--queue", "-p", help="List only jobs of this queue.", autocompletion=completion.queues)
    ] = None,
    array: Annotated[MaybeText, typer.Option("--array", help="List the elements of this array.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="List so many jobs at most.")] = 50,
    every: Annotated[bool, typer.Option("--all", help="List all jobs, however many.")] = False,
    chosen: Annotated[
        MaybeText,
        typer.Option(
            "--columns", "-o", metavar="NAME,...", help="Print these columns: " + ", ".join(columns.NAMES) + "."
        ),
    ] = None,
    heading: Annotated[bool, typer.Option("--heading/--no-heading", help="Print the columns' names above.")] = True,
    snakemake: Annotated[
        bool, typer.Option("--snakemake", help="Print success, failed or running, as Snakemake's --status-cmd does.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show your jobs, those that live first, or all about one."""
    out = output(as_json, quiet)
    daemon = client(context)
    if snakemake:
        print(_for_snakemake(daemon, jobs or [], out))
        return
    if not as_json and not quiet:
        tell_trouble(daemon, out)
    shown = columns.chosen(chosen, users=all_users or user is not None)
    states = _states(state)
    if jobs is not None and len(jobs) == 1 and not names_several(jobs[0]) and chosen is None:
        found = daemon.get(path(jobs[0]))
        out.result(found, lambda: showing.job_detail(found, out), quiet=found["state"])
        return
    query: dict[str, Any] = {"state": states, "queue": queue, "user": user, "name": name, "array": array}
    query["mine"] = None if all_users or user is not None else "true"
    more = False
    listed: list[JobView]
    if jobs:
        listed = [daemon.get(path(id)) for id in ids(daemon, jobs)]
        listed = [job for job in listed if not states or job["state"] in states]
    else:
        listed = []
        for alive in ("true", "false"):
            left = None if every else limit + 1 - len(listed)
            listed += daemon.jobs(left, alive=alive, **query)
        if not every and len(listed) > limit:
            more = True
            del listed[limit:]
    if not listed:
        out.note("no such job" if jobs or states or queue or user or name else "no job yet")
    out.result(
        {"jobs": listed},
        lambda: columns.table(listed, shown, out, heading=heading) if listed else None,
        quiet="\n".join(one["id"] for one in listed) if listed else None,
    )
    if more:
        out.note(f"these are the first {limit}; --all shows every job")


def _for_snakemake(daemon: Client, jobs: list[str], out: Output) -> str:
    """One word for one job. A workflow must not end because the daemon is started again: a job that cannot be asked
    about runs. Raises EjbError where not one job is named, or there is no such job."""
    if len(jobs) != 1 or names_several(jobs[0]):
        raise EjbError(Code.INVALID, "one job is asked about at a time", where="--snakemake", hint="ejb status ID")
    try:
        state = JobState(daemon.get(path(jobs[0]))["state"])
    except EjbError as error:
        if error.code is not Code.UNREACHABLE:
            raise
        out.note(f"{error.sentence()}; the job is taken to be running")
        return "running"
    if state not in TERMINAL_JOB:
        return "running"
    return "success" if state is JobState.COMPLETED else "failed"


def _states(words: list[str] | None) -> list[str] | None:
    """The states that were asked for, each once. Raises EjbError for a word that is none."""
    found: dict[str, None] = {}
    for word in ",".join(words or ()).lower().split(","):
        if not word:
            continue
        meant = _SLURM.get(word) or ((JobState(word),) if word in set(JobState) else None)
        if meant is None:
            known = ", ".join([*JobState, "living", "ended"])
            hint = f"there are: {known}; and squeue's words"
            raise EjbError(Code.INVALID, f"{word!r} is not the state of a job", where="--state", hint=hint)
        found.update(dict.fromkeys(state.value for state in meant))
    return list(found) or None


def add_to(app: typer.Typer) -> None:
    app.command()(status)
