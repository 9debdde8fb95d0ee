"""Running a batch system's command: argument list, own time-out, plain environment, bounded output, counted by name."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ejbd.errors import BatchError

OUTPUT_LIMIT = 64 * 1024 * 1024
"""Bytes of stdout that are read before a command is ended: about 300,000 jobs."""

_STEERING = ("SLURM", "SBATCH", "SRUN", "SALLOC", "SQUEUE", "SINFO", "SACCT", "SCANCEL", "SCONTROL", "PBS", "LC_")
_STEERING_NAMES = frozenset({"LANG", "LANGUAGE", "TZ"})
_KEPT = frozenset({"SLURM_CONF", "PBS_CONF_FILE", "PBS_DEFAULT", "PBS_SERVER"})
"""Where the batch system is, as opposed to how its commands are to behave."""


class CommandTimedOut(BatchError):
    """The command did not end in its time and was killed. What it had asked for may have been done."""

    def __init__(self, name: str, timeout_s: float, stderr: str, stdout: str = "") -> None:
        self.stdout = stdout
        super().__init__(
            f"{name} did not answer within {timeout_s:g} s",
            transient=True,
            stderr=stderr,
            hint="the batch system is busy or its controller is down",
        )


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command that ended left behind. `code` is -signal where a signal ended it."""

    name: str
    code: int
    stdout: str
    stderr: str
    seconds: float


@dataclass(slots=True)
class CommandCount:
    """How often a command ran, how often it did not end well, and the seconds that all of them took."""

    calls: int = 0
    failures: int = 0
    seconds: float = 0.0


LEAST_ACT_S = 3.0


class ActTime:
    """How long a command that acts on a job may take, which goes by a look at the job just before it.

    While no controller answers, a command asks on for a long time (Slurm's for MessageTimeout). One that comes up
    meanwhile may have given the number to another job. So a command that takes long is ended, and comes after another
    look. It has twice as long as the last one took, and at least LEAST_ACT_S.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self.seconds = min(LEAST_ACT_S, most_s)

    async def run(self, command: Callable[[float], Awaitable[CommandResult]]) -> CommandResult:
        """Raises CommandTimedOut, too."""
        try:
            result = await command(self.seconds)
        except CommandTimedOut:
            self.seconds = min(2 * self.seconds, self._most_s)
            raise
        self.seconds = min(max(LEAST_ACT_S, 2 * result.seconds), self._most_s)
        return result


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a command is started, and with which umask and soft resource limits; None and missing: as we are.

    A limit is never more than our own hard one.
    """

    directory: Path | None = None
    umask: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    def limiting(self, path: str | None) -> list[str]:
        """The command that sets the limits and becomes another; nothing where they are ours already."""
        words = []
        for name, wanted in self.limits.items():
            soft, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
            limit = hard if _is_above(wanted, hard) else wanted
            if limit != soft:
                words.append(f"--{name}={'unlimited' if limit < 0 else limit}:")
        prlimit = shutil.which("prlimit", path=path) if words else None
        return [prlimit, *words, "--"] if prlimit else []


HERE = Surroundings()


def limits_above_ours(limits: Mapping[str, int]) -> dict[str, int]:
    """Those that cannot be given to a command, each with our own hard limit, which it gets instead."""
    found = {}
    for name, wanted in limits.items():
        hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
        if _is_above(wanted, hard):
            found[name] = hard
    return found


def _is_above(wanted: int, hard: int) -> bool:
    return hard != resource.RLIM_INFINITY and (wanted < 0 or wanted > hard)


@dataclass(slots=True)
class Commands:
    """Runs commands and counts them by the name of the program."""

    environment: Mapping[str, str] = field(default_factory=lambda: plain_environment())
    output_limit: int = OUTPUT_LIMIT
    counts: dict[str, CommandCount] = field(default_factory=dict)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        environment: Mapping[str, str] | None = None,
        surroundings: Surroundings = HERE,
        descriptors: Sequence[int] = (),
    ) -> CommandResult:
        """Run to the end. `environment` replaces the common one; the program is always looked up on the common PATH.
        `descriptors` are open in it, too.

        Raises CommandTimedOut, or BatchError where the command cannot be started or says more than `output_limit`.
        """
        name = Path(argv[0]).name
        count = self.counts.setdefault(name, CommandCount())
        count.calls += 1
        began = time.monotonic()
        ended_well = False
        try:
            program = shutil.which(argv[0], path=self.environment.get("PATH"))
            if program is None:
                raise BatchError(f"{name} is not installed", transient=False, hint="set PATH for ejbd")
            result = await _run(
                name,
                [*surroundings.limiting(self.environment.get("PATH")), program, *argv[1:]],
                timeout_s,
                None if stdin is None else stdin.encode(),
                dict(self.environment if environment is None else environment),
                self.output_limit,
                surroundings,
                descriptors,
            )
            ended_well = result.code == 0
            return result
        finally:
            count.seconds += time.monotonic() - began
            count.failures += not ended_well


def plain_environment(base: Mapping[str, str] | None = None, **more: str) -> dict[str, str]:
    """The environment for batch commands: nothing that steers them or their language, times in UTC.

    SLURM_CONF and the like stay, since they say which batch system is meant.
    """
    kept = {name: value for name, value in (os.environ if base is None else base).items() if not steers(name)}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **kept, "LC_ALL": "C", "TZ": "UTC0", **more}


def steers(name: str) -> bool:
    """Whether an environment variable would change what a batch command does or how it words it."""
    return name not in _KEPT and (name in _STEERING_NAMES or name.startswith(_STEERING))


async def _run(
    name: str,
    argv: Sequence[str],
    timeout_s: float,
    stdin: bytes | None,
    environment: dict[str, str],
    limit: int,
    surroundings: Surroundings,
    descriptors: Sequence[int],
) -> CommandResult:
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=surroundings.directory,
            umask=-1 if surroundings.umask is None else surroundings.umask,
            pass_fds=tuple(descriptors),
            start_new_session=True,  # so that a time-out ends the command's own children too
        )
    except (OSError, ValueError) as error:
        if surroundings.directory is not None and not surroundings.directory.is_dir():
            missing = f"the directory {surroundings.directory} is not there, or may not be entered"
            raise BatchError(f"{name} cannot be started: {missing}", transient=False) from error
        raise BatchError(f"{name} cannot be started: {error}", transient=isinstance(error, BlockingIOError)) from error
    out, err = bytearray(), bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            assert process.stdout is not None and process.stderr is not None
            await asyncio.gather(
                _read(process.stdout, out, limit, name),
                _read(process.stderr, err, limit, name),
                _feed(process.stdin, stdin),
            )
            code = await process.wait()
    except TimeoutError:
        raise CommandTimedOut(name, timeout_s, err.decode(errors="replace"), out.decode(errors="replace")) from None
    finally:
        await _end(process)
    return CommandResult(
        name, code, out.decode(errors="replace"), err.decode(errors="replace"), time.monotonic() - began
    )


async def _read(stream: asyncio.StreamReader, into: bytearray, limit: int, name: str) -> None:
    while chunk := await stream.read(65536):
        into += chunk
        if len(into) > limit:
            raise BatchError(f"{name} said more than {limit} bytes", transient=False)


async def _feed(stream: asyncio.StreamWriter | None, data: bytes | None) -> None:
    if stream is None or data is None:
        return
    try:
        stream.write(data)
        await stream.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended without reading on; its exit code says why
    finally:
        stream.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the command's whole group if it still runs, and reap it."""
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        async with asyncio.timeout(2):
            await process.wait()
    except TimeoutError:
        pass  # in uninterruptible sleep, on a dead file server for instance; that cannot be waited out
