"""`scontrol show job`, `hold` and `release` of EJB's jobs; all else is the site's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from ejbd._workers.ejb_worker.own_job import with_fields
from ejbd.cli.links import fields, real, states
from ejbd.cli.links.batchrows import ask_squeue, with_slurms
from ejbd.cli.links.fields import NONE
from ejbd.cli.links.rows import Details, Row, named, without_tags
from ejbd.cli.output import printable
from ejbd.client.client import Client
from ejbd.client.messages import job_path
from ejbd.errors import Code, EjbError
from ejbd.wire.payloads import JobDetail
from ejbd.wire.visible import visible

_VALUED = ("-M", "--clusters")
_ENDS_ITS_CALLER = ("requeue", "requeuehold")
_JOB = ("jobs", "jobid", "jobids")
_CHANGES = ("update", "requeue", "requeuehold", "suspend", "resume")


def run(words: Sequence[str]) -> int:
    """Do it for EJB's jobs, and leave the rest to the site's own command; the exit code."""
    flags, said = _split(words)
    command, jobs = _asked(said)
    if not jobs:
        _refuse_embedded(said)
        if said and said[0] in _ENDS_ITS_CALLER:
            real.become("scontrol", words)
        return _others(words)
    daemon = Client()
    found = named(daemon, jobs, apart=command == "show")
    code = 0
    for row in found.rows:
        if command != "show":
            code = _change(daemon, row, command) or code
            continue
        # Slurm itself shows more of a job that it has by this number, as long as it remembers it.
        whole = not row.job["elastic"] and row.job["array"] is None and not is_embedded(daemon)
        detail: JobDetail = daemon.get(job_path(row.job["id"]))
        if not whole or not _shown_by_slurm(flags, row, detail):
            lines = _lines(_with_slurms(row), detail)
            print(" ".join(lines) if {"-o", "--oneliner"} & set(flags) else "\n   ".join(lines), end="\n\n")
    if found.others:
        line = [*flags, *(("show", "job") if command == "show" else (command,)), ",".join(found.others)]
        code = _others(line) or code
    return code


def _change(daemon: Client, row: Row, command: str) -> int:
    """Hold a job, or release it; the exit code."""
    try:
        daemon.request("POST", job_path(row.job["id"], f"/{command}"))
    except EjbError as error:
        if error.code is not Code.CONFLICT or row.state in states.LIVING:
            raise
        slurm = _with_slurms(row).slurm
        if slurm and slurm["state"] not in states.LIVING:
            return _others([command, row.id])  # Slurm knows it as ended, too, and has its own words for it
        for said in (f"Job has already finished for job {row.id}", "slurm_suspend error: Job has already finished"):
            print(said, file=sys.stderr)
        return 1
    return 0


def is_embedded(daemon: Client) -> bool:
    """Whether the numbers are of the embedded cluster's jobs, which are others' on a Slurm that is there besides."""
    return bool(daemon.get("/v1/health")["batch"] == "local")


def _refuse_embedded(said: Sequence[str]) -> None:
    """Raise EjbError (UNSUPPORTED) for a change of a job of the embedded cluster, which only a Slurm can make."""
    if not said or said[0] not in _CHANGES:
        return
    given = [word.rpartition("=")[2] for word in said[1:] if said[0] != "update" or _names_job(word)]
    jobs = [part for word in given for part in word.split(",") if part.partition("_")[0].isdigit()]
    if not jobs:
        return
    try:
        daemon = Client()
        is_ours = is_embedded(daemon) and bool(named(daemon, jobs, apart=False).rows)
    except EjbError:
        return  # no daemon answers: the site's own command says what there is
    if is_ours:
        hint = "cancel the job, and submit it anew as it is to be"
        raise EjbError(Code.UNSUPPORTED, f"the embedded cluster cannot {said[0]} a job", hint=hint)


def _names_job(word: str) -> bool:
    name = word.partition("=")[0].lower()
    return len(name) >= 3 and "=" in word and any(one.startswith(name) for one in _JOB)


def _shown_by_slurm(flags: Sequence[str], row: Row, detail: JobDetail) -> bool:
    """Print what Slurm has of a job, which may run in a script of EJB's; whether it has it."""
    import subprocess

    command = real.own_command("scontrol")
    if command is None:
        return False
    done = subprocess.run([command, *flags, "show", "job", row.id], check=False, capture_output=True, text=True)
    if done.returncode == 0:
        text = without_tags(done.stdout)
        if not re.search(rf"\sWorkDir={re.escape(detail['cwd'])}\s", text):
            text = with_fields(text, _files(row, detail))
        print(text, end="")
    return done.returncode == 0


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the words of the command."""
    flags: list[str] = []
    said: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        (flags if word.startswith("-") else said).append(word)
        if word in _VALUED and rest:
            flags.append(rest.pop(0))
    return flags, said


def _asked(said: Sequence[str]) -> tuple[str, list[str]]:
    """What is to be done with which jobs; none where that is no affair of EJB's."""
    if not said:
        return "", []
    if said[0] in ("hold", "uhold", "release"):
        jobs = [part for word in said[1:] for part in word.split(",") if part]
        return said[0].removeprefix("u"), jobs if all(part.partition("_")[0].isdigit() for part in jobs) else []
    if "show".startswith(said[0]) and len(said) > 1:
        entity, _, value = said[1].partition("=")
        if len(entity) >= 3 and any(name.startswith(entity.lower()) for name in _JOB):
            return "show", [part for word in (value, *said[2:]) for part in word.split(",") if part]
    return "", []


def _others(words: Sequence[str]) -> int:
    code = real.ask("scontrol", words)
    if code is None:
        raise EjbError(
            Code.UNSUPPORTED, "there is no scontrol of the site's on the PATH, and this is about no job of EJB's"
        )
    return code


def _files(row: Row, detail: JobDetail) -> dict[str, str]:
    """What is EJB's of a job that Slurm runs in a script of EJB's."""
    shown = replace(row, job=detail)
    names = {"Command": "command", "WorkDir": "workdir", "StdErr": "stderr", "StdOut": "stdout"}
    return {name: printable(visible(fields.squeue_value(shown, key))) for name, key in names.items()}


def _with_slurms(row: Row) -> Row:
    return next(iter(with_slurms([row], ask_squeue([row], (), (), long=False), Details(Client()), {})), row)


def _lines(row: Row, detail: JobDetail) -> list[str]:
    job = row.job
    number = row.number
    array = f"ArrayJobId={row.array} ArrayTaskId={row.index.strip('[]')} " if row.index is not None else ""
    uid = fields.uid(row)
    nodes = fields.nodes(row)
    count = max(1, len(job["nodes"]))
    lines = [
        f"JobId={number} {array}JobName={visible(row.name)}",
        f"UserId={job['user']}({uid}) MCS_label=N/A",
        f"JobState={row.state} Reason={fields.reason(row).replace(' ', '_')} Dependency={NONE}",
        f"Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={fields.exit_code(row)}",
        f"RunTime={fields.lasting(fields.elapsed_s(row), whole=True)} TimeLimit={fields.limit(row, whole=True)}"
        " TimeMin=N/A",
        f"SubmitTime={fields.moment(job['submit_s'])} EligibleTime={fields.moment(job['submit_s'])}",
        f"StartTime={fields.start(row, 'Unknown')} EndTime={fields.end(row, 'Unknown')} Deadline=N/A",
        f"Partition={job['queue']}",
        f"NodeList={nodes or NONE}",
        *([f"BatchHost={job['nodes'][0]}"] if job["nodes"] else []),
        f"NumNodes={count} NumCPUs={job['processes']} NumTasks={job['processes']} CPUs/Task=1",
        *(f"{name}={value}" for name, value in _files(row, detail).items()),
        "StdIn=/dev/null",
        f"Comment=ejb:{job['id']}",
    ]
    return [printable(line) for line in lines]
