"""Jobs that are passed through: handed to the batch system as their users asked for them.

Slurm's own sbatch is given the user's script and its arguments, the options of the command line, and the user's folder,
environment, umask and limits. A tag is added behind the user's own comment. EJB finds the job again by it.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ejbd.batch.base import AsAsked, BatchSystem, SubmitRequest
from ejbd.batch.process import limits_above_ours
from ejbd.core.walltime import format_walltime
from ejbd.manager.facts.batchjob import pbsvariables
from ejbd.manager.facts.batchjob.exithook import write_exit
from ejbd.manager.facts.batchjob.output import literally, output_paths
from ejbd.manager.facts.placing.mpi import Profile
from ejbd.manager.hands.files import Files
from ejbd.manager.jobspec import Asked, JobKind, JobSpec, exported
from ejbd.manager.jobspec.patterns import SBATCHS_ARRAY_OUTPUT, SBATCHS_OUTPUT
from ejbd.manager.jobspec.pbsfiles import SERVER

TRIAL_TAG = "ejb-0.0"
_NUMBER_SIGN = re.compile("%%|%([0-9]*)[jJ]")
_NUMBER, _SERVER = "\x01", "\x02"  # no path holds them


def lowered_limits(spec: JobSpec) -> tuple[str, ...]:
    """Notes on resource limits that the job will not get, since the daemon itself may not have them."""
    limits = spec.asked.limits if spec.asked is not None else {}
    return tuple(
        f"the limit on {name} ({'unlimited' if limits[name] < 0 else limits[name]}) is lowered to {hard}, "
        "which is the daemon's own hard limit"
        for name, hard in limits_above_ours(limits).items()
    )


def script_of(spec: JobSpec, batch: BatchSystem, launcher: Profile | None = None, exit_file: Path | None = None) -> str:
    """The text that is run: the user's script, or what starts the ranks of a command and writes how they ended."""
    if spec.script is not None:
        return spec.script
    if launcher is not None:
        body = shlex.join([*launcher.launcher, "-np", str(spec.processes), *spec.argv])
    else:
        body = batch.rigid_command(spec.argv, spec.processes)
    if exit_file is not None:
        body = f"{body}\ncode=$?\n(exit $code)\n{write_exit(exit_file)}\nexit $code"
    return f"#!/bin/sh\n{body}\n"


def file_to_submit(spec: JobSpec, folder: Path, files: Files) -> Path | None:
    """The file that sbatch reads the script from: the user's own where it still holds it, else a copy in `folder`.

    None: from standard input, since it came from no file. May wait for a disk.
    """
    if spec.script is None or spec.asked is None or spec.asked.path is None:
        return None
    path, text = Path(spec.asked.path), _bytes(spec)
    if _holds(path, text):
        return path
    copy = folder / (path.name or "job")
    files.put(copy, text, 0o700)
    return copy


def _holds(path: Path, text: bytes) -> bool:
    """Whether a regular file holds just this. Never waits for the other end of a FIFO."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return stat.S_ISREG(found.st_mode) and found.st_size == len(text) and file.read(len(text) + 1) == text


def trial(spec: JobSpec, user: str, batch: BatchSystem) -> SubmitRequest:
    """The submission as it will be, to ask the batch system about it before there is a job. May wait for a disk."""
    path = Path(spec.asked.path) if spec.asked is not None and spec.asked.path is not None else None
    file = path if path is not None and spec.script is not None and _holds(path, _bytes(spec)) else None
    names = Names(TRIAL_TAG, "0", user, spec.queue or "")
    return request_for(spec, script_of(spec, batch), names, file)


def _bytes(spec: JobSpec) -> bytes:
    return (spec.script or "").encode(errors="surrogateescape")


def with_walltime(spec: JobSpec, walltime_s: float) -> JobSpec:
    """The same job with a walltime that is not its user's own: said last, so that it holds over script and options."""
    if walltime_s == spec.walltime_s:
        return spec
    asked = spec.asked
    if asked is not None:
        asked = replace(asked, options=(*asked.options, f"--time={format_walltime(walltime_s)}"))
    return replace(spec, walltime_s=walltime_s, asked=asked)


def with_number(spec: JobSpec, number: str) -> JobSpec:
    """The same job with output files by the number that its submission was told; the batch system gives it another."""
    asked = spec.asked
    if asked is None or asked.array is not None:
        return spec
    output = asked.output if asked.output is not None else f"{spec.cwd.replace('%', '%%')}/{SBATCHS_OUTPUT}"
    words: list[str] = []
    for name, pattern in (("output", output), ("error", asked.error)):
        if pattern is not None and "\\" not in pattern:
            path = _NUMBER_SIGN.sub(
                lambda sign: sign[0] if sign[0] == "%%" else number.zfill(int(sign[1] or 0)), pattern
            )
            words += [f"--{name}={path}"] if path != pattern else []
    return replace(spec, asked=replace(asked, options=(*asked.options, *words)))


@dataclass(frozen=True, slots=True)
class Names:
    """What a submission goes by. `element`: of an array that the batch system does not know of, its number, the index,
    and the variables that tell it so."""

    tag: str
    job_id: str
    user: str
    queue: str
    element: tuple[str, int] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def request_for(spec: JobSpec, script: str, names: Names, file: Path | None, hook: Path | None = None) -> SubmitRequest:
    """The submission of a passed-through job. `hook`: what its bash reads first."""
    # The batch system that runs the job puts its number in.
    output, error = (
        None if path is None else Path(str(literally(path)).replace(_NUMBER, "%j").replace(_SERVER, SERVER))
        for path in output_paths(
            spec, names.job_id, names.user, node="", number=_NUMBER, element=names.element, server=_SERVER
        )
    )
    assert output is not None
    asked = spec.asked
    plain = SubmitRequest(
        tag=names.tag,
        name=spec.name,
        comment=asked.comment if asked is not None else "",
        queue=names.queue,
        processors=spec.processes * spec.threads,
        threads=spec.threads,
        walltime_s=spec.walltime_s or None,  # it may name none
        script=script,
        workdir=Path(spec.cwd),
        output=output,
        error=error,
        nodes=spec.nodes,
        tasks_per_node=spec.processors_per_node,
        options=(*spec.options, *spec.rigid_options),
        native=spec.qsub if asked is None else asked.qsub,
        environment=spec.env or exported({} if asked is None else asked.env, None, ""),
        hold=spec.hold,
        args=spec.argv if spec.kind is JobKind.SCRIPT else (),
    )
    if asked is None:
        return plain
    as_asked = AsAsked(
        options=asked.options,
        file=file,
        directory=Path(asked.directory),
        name=None if asked.named or file is not None else spec.name,
        environment=_environment(spec, asked, hook),
        export=None if asked.whole_env else asked.export,
        job_name=spec.name,
        told=asked.told,
        element=names.variables,
        tasks_asked=spec.tasks_asked,
    )
    return replace(plain, umask=asked.umask, limits=asked.limits, asked=as_asked)


def _environment(spec: JobSpec, asked: Asked, hook: Path | None) -> dict[str, str]:
    """What sbatch is started in, and hands on: a script for PBS goes to the folder it was submitted from by itself."""
    of_pbs = pbsvariables.of_submission(spec, asked.env, asked.directory) if spec.pbs else {}
    return {**asked.env, **of_pbs, **({} if hook is None else {"BASH_ENV": str(hook)})}


def output_of(spec: JobSpec, asked: Asked, batch_id: str, user: str, nodes: list[str]) -> tuple[str, str | None]:
    """The files that Slurm writes a passed-through job's output to, as far as EJB knows them (None: one for both)."""
    default = SBATCHS_ARRAY_OUTPUT if asked.array is not None else SBATCHS_OUTPUT
    output = asked.output if asked.output is not None else f"{spec.cwd.replace('%', '%%')}/{default}"
    found = replace(spec, output=output, error=asked.error)
    return output_paths(found, batch_id, user, node=nodes[0] if nodes else "")
