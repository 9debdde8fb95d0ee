"""The embedded cluster as a batch system of EJB."""

from __future__ import annotations

import asyncio
import getpass
import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ejbd.batch.base import (
    NO_MARKS,
    BatchEnd,
    Identity,
    Mailing,
    Mark,
    SubmitRequest,
    WorkerScript,
    refuse_others,
)
from ejbd.batch.exits import exit_files
from ejbd.batch.local.client import CHANGE_WAIT_S, PROTOCOL, Client
from ejbd.batch.local.options import QUEUE, Wanted, describe_unheeded, machine_memory_mb, read_options
from ejbd.batch.process import CommandCount
from ejbd.batch.reading import beside
from ejbd.batch.starter import BEGINS_ALONE, alone_words, worker_words
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations
from ejbd.errors import BatchError

# What a job gets of our own environment where the request says nothing else: enough to find programs and home.
DEFAULT_WALLTIME_S = 3600.0  # of a job that names none
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")

_WORKER_SCRIPT = """\
#!/bin/sh
# A subjob of EJB on the embedded cluster: one worker for each virtual node, all on this machine.
exit_file={exit_file}
workers=""
signalled=0
forward() {{
    signalled=1
    for each in $workers; do kill -TERM "$each" 2>/dev/null; done
}}
trap forward TERM INT HUP
for share in $(printf '%s' "$EJB_LOCAL_NODES" | tr ',' ' '); do
    {step} {worker} --node "${{share%%:*}}" --processors "${{share##*:}}" &
    workers="$workers $!"
done
[ "$signalled" = 0 ] || forward
to_their_end() {{
    greatest=0
    for worker in $workers; do
        last=0
        while :; do
            signalled=0
            wait "$worker"
            code=$?
            # A signal interrupts wait: ask again. 127: it had been collected before, and the last code was its own.
            [ "$signalled" = 0 ] || {{ last=$code; continue; }}
            [ "$code" = 127 ] && [ "$last" != 0 ] && code=$last
            break
        done
        [ "$code" -gt "$greatest" ] && greatest=$code
    done
}}
to_their_end
# Where the workers leave since no manager answers, the job's own script takes their place (docs/guarantees.md).
if [ "$greatest" = {alone_code} ]; then
    {alone} --path-first "${{PATH%%:*}}" &
    workers=$!
    to_their_end
fi
printf '%s\\n' "$greatest" > "$exit_file.$$" && mv -f "$exit_file.$$" "$exit_file"
exit "$greatest"
"""


class LocalBatch:
    """The embedded cluster in `directory`: `nodes` virtual nodes of `processors_per_node` processors.

    Its server is started by the first call that needs it and outlives this process. Every call has `timeout_s`.
    `folds`: it is a pool, with running jobs folded in place for the next one (docs/malleable.md). `names`: of real
    nodes, in place of virtual ones; `step` is the command that starts a worker on `{node}`. `until_s` (epoch seconds):
    the pool ends then; within `drain_s` before it nothing starts that does not end by then.
    """

    name = "local"

    def __init__(
        self,
        directory: Path,
        nodes: int = 8,
        processors_per_node: int = 4,
        *,
        timeout_s: float = 10.0,
        folds: bool = False,
        names: Sequence[str] = (),
        step: str = "",
        until_s: float | None = None,
        drain_s: float = 0.0,
    ) -> None:
        self._directory = directory.absolute()
        self._nodes = nodes
        self._processors = processors_per_node
        options = [*(["--folds"] if folds else []), *(["--names", " ".join(names)] if names else [])]
        options += [] if until_s is None else ["--until", repr(until_s), "--drain", repr(drain_s)]
        self._client = Client(self._directory, nodes, processors_per_node, timeout_s, options=options)
        self._step = step
        self._memory_mb = None if names else machine_memory_mb()  # real nodes have their own
        self._timeout_s = timeout_s
        self._shape_is_known = False
        self.command_counts: Mapping[str, CommandCount] = {}  # there is a socket instead of commands

    async def observe(self) -> ClusterView:
        """See :meth:`BatchSystem.observe`; one request."""
        answer = await self._call("list")
        nodes = tuple(
            NodeView(name, processors, free, True, (QUEUE,), _node_state(processors, free))
            for name, processors, free in answer["nodes"]
        )
        jobs = await beside(lambda: _jobs(answer))
        queue = QueueView(QUEUE, True, None, 1, sum(node.processors for node in nodes), default=True)
        return ClusterView(answer["time_s"], nodes, jobs, (queue,), Reservations.PROCESSORS, walltime_quantum_s=1.0)

    async def changed(self, since: int) -> int:
        """See :meth:`TellsChanges.changed`; one request that is answered late."""
        answer = await self._call("wait", since=since, timeout_s=CHANGE_WAIT_S + self._timeout_s)
        return int(answer["version"])

    async def submit(self, identity: Identity, request: SubmitRequest) -> str:
        """See :meth:`BatchSystem.submit`.

        Scripts made for a real cluster are to run here as they are: :mod:`ejbd.batch.local.options` has what becomes of
        each option.
        """
        refuse_others(identity)
        return str((await self._call("submit", **self._fields(request)))["id"])

    async def check(self, identity: Identity, request: SubmitRequest, timeout_s: float) -> Sequence[str]:
        """See :meth:`BatchSystem.check`."""
        refuse_others(identity)
        await self._call("check", **self._fields(request))
        unheeded = describe_unheeded(self._wanted(request).unheeded)
        return [unheeded] if unheeded else []

    def _wanted(self, request: SubmitRequest) -> Wanted:
        return read_options(request, memory_mb=self._memory_mb, processors_per_node=self._processors)

    def _fields(self, request: SubmitRequest) -> dict[str, Any]:
        """A submission as the server reads it. Raises BatchError for what the embedded cluster has not."""
        wanted = self._wanted(request)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment.update({name: value for name, value in os.environ.items() if name.startswith("LC_")})
        environment.update(request.environment)
        asked = request.asked
        if asked is not None:
            environment["SLURM_SUBMIT_DIR"] = str(asked.directory)
            environment["SLURM_SUBMIT_HOST"] = socket.gethostname()
            environment.update(wanted.variables)
            environment.update(asked.element)
        signal = wanted.signal
        walltime_s = DEFAULT_WALLTIME_S if request.walltime_s is None else request.walltime_s
        return {
            "name": request.tag,
            "comment": request.comment,
            "script": request.script,
            "args": list(request.args),
            "processors": wanted.processors,
            "layout": wanted.layout.to_json(),
            "walltime_s": walltime_s if wanted.walltime_s is None else wanted.walltime_s,
            "workdir": str(request.workdir),
            "output": str(request.output),
            "error": None if request.error is None else str(request.error),
            "input": os.path.join(request.workdir, wanted.input) if wanted.input else "",  # noqa: PTH118 as it is written
            "append": wanted.append,
            "signal": None if signal is None else [signal.number, signal.ahead_s, signal.script],
            "environment": environment,
            "tells": None
            if asked is None
            else {"name": asked.job_name, "tasks": request.processors // request.threads},
            "hold": request.hold or bool(request.stands_by_for),
            "begin_in_s": request.begin_in_s,
            "eligible_s": wanted.begin_s,
            "umask": _umask() if request.umask is None else request.umask,
            "limits": dict(request.limits),
            "folds": request.folds,
            "moves": request.moves,
        }

    async def find(self, identity: Identity, tags: Sequence[str]) -> dict[str, str]:
        """See :meth:`BatchSystem.find`. The newest of several jobs of one name."""
        refuse_others(identity)
        found: dict[str, str] = (await self._call("find", names=list(tags)))["ids"]
        return found

    async def list_jobs(self, ids: Sequence[str]) -> list[BatchJobView]:
        """See :meth:`BatchSystem.list_jobs`."""
        return [job for job in (await self.observe()).jobs if job.id in ids]

    async def cancel(self, identity: Identity, ids: Sequence[str]) -> None:
        """See :meth:`BatchSystem.cancel`: TERM, and KILL after two seconds."""
        refuse_others(identity)
        await self._call("cancel", ids=list(ids))

    async def signal(self, identity: Identity, id: str, number: int, to: str) -> None:
        """See :meth:`SendsSignals.signal`."""
        refuse_others(identity)
        await self._call("signal", id=id, number=number, to=to)

    async def update(
        self,
        identity: Identity,
        id: str,
        *,
        walltime_s: float | None = None,
        hold: bool | None = None,
        begins: bool | None = None,
        begin_in_s: float | None = None,
    ) -> None:
        """See :meth:`BatchSystem.update`. A walltime that is longer than the present one is refused."""
        refuse_others(identity)
        hold = hold if begins is None else not begins
        ahead_s = None if begins is False else begin_in_s  # it is held until it is let begin
        if begins and ahead_s is None:
            ahead_s = 0.0  # at once, whatever begin it was submitted with
        await self._call("update", id=id, walltime_s=walltime_s, hold=hold, begin_in_s=ahead_s)

    async def waited_for(self, identity: Identity, ids: Sequence[str]) -> set[str]:
        """See :meth:`BatchSystem.waited_for`. No job of the embedded cluster waits for another."""
        refuse_others(identity)
        return set()

    async def reduce(self, identity: Identity, id: str, *, held: bool) -> None:
        """See :meth:`BatchSystem.reduce`."""
        raise BatchError("the embedded cluster makes no job smaller", transient=False)

    async def set_aside(self, identity: Identity, id: str) -> None:
        """See :meth:`BatchSystem.set_aside`."""
        raise BatchError("the embedded cluster takes no job that runs back into its queue", transient=False)

    async def outcomes(self, ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        """See :meth:`BatchSystem.outcomes`: the server's own books first, then the exit files."""
        found: dict[str, BatchEnd] = {}
        failure: BatchError | None = None
        try:
            rows = (await self._call("outcomes", ids=list(ids)))["jobs"]
        except BatchError as error:
            failure, rows = error, {}
        for id, row in rows.items():
            if id in marks and not marks[id].is_on(row["name"], row["submit_s"]):
                continue
            code, signal = _exit_of(row)
            found[id] = BatchEnd(BatchState(row["state"]), code, row["end_s"], "accounting", exit_signal=signal)
        if unknown := {id: path for id, path in ids.items() if id not in found}:
            found |= await exit_files(unknown)
        if failure is not None and len(found) < len(ids):
            raise failure
        return found

    def worker_script(self, request: WorkerScript) -> str:
        """See :meth:`BatchSystem.worker_script`. Forwards TERM to the workers and waits for them."""
        return _WORKER_SCRIPT.format(
            step=self._step.replace("{node}", '"${share%%:*}"'),
            worker=shlex.join(worker_words(request)),
            exit_file=shlex.quote(str(request.exit_file)),
            alone_code=BEGINS_ALONE,
            alone=shlex.join(alone_words(request)),
        )

    def rigid_command(self, argv: Sequence[str], processors: int) -> str:
        """See :meth:`BatchSystem.rigid_command`: the launcher that jobs of this cluster find on their PATH."""
        return f"srun -n {processors} -- {shlex.join(argv)}"

    async def mailing(self) -> Mailing:
        return Mailing("")

    async def doctor(self) -> list[tuple[str, bool, str]]:
        """Whether the server answers, is private, and runs under the user that we are."""
        checks = []
        try:
            answer = await self._client.call("hello", start=False)
        except BatchError:
            return [("embedded cluster", True, f"not running in {self._directory}; the first use starts it")]
        shape = f"{answer['nodes']} nodes of {answer['processors']} processors, server process {answer['pid']}"
        checks.append(("embedded cluster", True, shape))
        mode = self._directory.stat().st_mode & 0o777
        checks.append(
            (
                "its directory is private",
                mode & 0o077 == 0,
                f"{self._directory} has mode {mode:o}"
                + ("" if mode & 0o077 == 0 else f"; run chmod 700 {self._directory}"),
            )
        )
        checks.append(("jobs run as", True, getpass.getuser()))
        return checks

    async def close(self) -> None:
        """Nothing is held between calls: there is nothing to let go of."""

    async def _call(self, op: str, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        if not self._shape_is_known:
            hello = await self._client.call("hello")
            if hello.get("protocol", 0) < PROTOCOL:  # of an older EJB: its jobs and its queue outlive it
                await self._client.call("leave", start=False)
                await asyncio.to_thread(self._client.wait_until_gone)
                hello = await self._client.call("hello")
            there = (hello["nodes"], hello["processors"])
            if there != (self._nodes, self._processors):
                raise BatchError(
                    f"the embedded cluster in {self._directory} has {there[0]} nodes of {there[1]} processors, "
                    f"not {self._nodes} of {self._processors}",
                    transient=False,
                    hint=f"end it with `python -m ejbd.batch.local down {shlex.quote(str(self._directory))}`",
                )
            self._shape_is_known = True
        return await self._client.call(op, timeout_s=timeout_s, **fields)


def _node_state(processors: int, free: int) -> str:
    if free == processors:
        return "idle"
    return "mixed" if free else "allocated"


def _jobs(answer: Mapping[str, Any]) -> tuple[BatchJobView, ...]:
    return tuple(_job(row, answer["head"], answer["shadow_s"], answer["time_s"]) for row in answer["jobs"])


def _job(row: Mapping[str, Any], head: str | None, shadow_s: float | None, now: float) -> BatchJobView:
    state = BatchState(row["state"])
    planned_s = shadow_s if row["id"] == head else None
    early = state is BatchState.PENDING and row.get("begin_s", 0.0) > now  # an older server does not tell it
    code, signal = _exit_of(row)
    return BatchJobView(
        id=row["id"],
        name=row["name"],
        user=row["user"],
        queue=QUEUE,
        state=state,
        processors=row["processors"],
        walltime_s=row["walltime_s"],
        submit_s=row["submit_s"],
        start_s=row["start_s"],
        end_s=row["end_s"],
        nodes=tuple(row["nodes"]),
        share=tuple((node, count) for node, count in row.get("share", ())),
        places=tuple((node, tuple(numbers)) for node, numbers in row.get("places", ())),
        # EASY reserves for the head, and what has a begin of its own is kept; the others have no such start.
        planned_start_s=row["begin_s"] if early else planned_s,
        blocked=early,
        exit_code=code,
        exit_signal=signal,
        reason="BeginTime"
        if early
        else row["reason"] or {BatchState.PENDING: "waits for processors", BatchState.HELD: "held"}.get(state, ""),
    )


def _exit_of(row: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The code, 128 more than a signal, and that signal. The server has it as subprocess does: negative."""
    code: int | None = row["exit_code"]
    return (code, None) if code is None or code >= 0 else (128 - code, -code)


def _umask() -> int:
    """Read without setting it, which other threads would notice."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077
