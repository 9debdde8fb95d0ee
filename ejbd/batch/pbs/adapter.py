"""PbsBatch: the protocol of ejbd.batch.base, filled by the commands of OpenPBS, or of Torque with or without Maui."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ejbd.batch.base import (
    NO_MARKS,
    BatchEnd,
    Identity,
    Mailing,
    Mark,
    SubmitRequest,
    WorkerScript,
    refuse_no_walltime,
    refuse_others,
)
from ejbd.batch.exits import exit_files
from ejbd.batch.helped import Helped, entry_of
from ejbd.batch.pbs import checks, commands, refusals, script, states
from ejbd.batch.pbs.acting import Acts, HelpedActs, OwnActs, own_environment
from ejbd.batch.pbs.observing import Observing
from ejbd.batch.pbs.views import number, serves
from ejbd.batch.process import CommandTimedOut
from ejbd.batch.reading import beside
from ejbd.core.view import BatchJobView
from ejbd.errors import BatchError, SubmitOutcomeUnknown

REDUCED_S = 60.0
"""The walltime of a job that is to end as soon as it begins."""


class PbsBatch(Observing):
    """OpenPBS or Torque, through the commands on PATH.

    `dialect`: None asks `qstat --version`. `server`: another than the site's default (PBS_DEFAULT, PBS_SERVER).
    `use_maui`: None where `showbf` is there. `whole_nodes`: the site gives every job nodes of its own. `timeout_s`: of
    a query; `submit_timeout_s`: of a submission; `change_timeout_s`: of qalter, which can hang once it is done.
    `helper`: what acts for each job's user, where jobs of all users are served.
    """

    name = "pbs"

    # ---- acting

    def _acts(self, identity: Identity) -> Acts:
        """What acts for a user. Raises BatchError where nothing here does."""
        if self.helper is None:
            refuse_others(identity)
            return OwnActs(self.commands, own_environment(self.commands, self._own))
        return HelpedActs(Helped(self.helper, entry_of(identity), self.commands.counts, "PBS"))

    async def submit(self, identity: Identity, request: SubmitRequest) -> str:
        acts = self._acts(identity)
        qsub = await self._qsub(request)
        found = shutil.which("qsub", path=self.commands.environment.get("PATH")) or "/usr/bin/qsub"
        if self.helper is not None and request.umask is None:
            request = replace(request, umask=0o77)  # as ejb-as has it elsewhere
        text = script.whole_script(request, Path(found).parent)
        try:
            result = await acts.submit(qsub.argv(), request.tag, text, self._submit_timeout_s)
        except CommandTimedOut as error:
            if (id := qsub.parse(error.stdout)) is not None:
                return self._submitted(id)
            raise SubmitOutcomeUnknown(f"PBS may have taken the job or not: {error}", stderr=error.stderr) from error
        except UnicodeEncodeError as error:
            raise BatchError(f"PBS cannot take the job: {error}", transient=False) from error
        if result.code != 0:
            raise refusals.submit_refusal(result)
        id = qsub.parse(result.stdout)
        if id is None:
            said = result.stdout.strip()[:100]
            raise SubmitOutcomeUnknown(f"PBS may have taken the job or not: qsub answered {said!r}")
        return self._submitted(id)

    def _submitted(self, id: str) -> str:
        self._living[id] = 0
        return id

    async def _qsub(self, request: SubmitRequest) -> commands.Qsub:
        """The command of a submission. OpenPBS would keep for ever what is wider than its nodes: that is refused."""
        dialect = await self.dialect()
        if self._nodes is None:
            nodes, _ = self._nodes_of(dialect, await self._query(commands.list_nodes(dialect), "list its nodes"))
            self._nodes = {node.name: node for node in nodes}
        nodes_of_queue = list(self._nodes.values())
        site = await self.site()
        wanted = request.queue or site.default_queue
        queue = next((queue for queue in site.queues if queue.name == wanted), None)
        if queue is not None:
            nodes_of_queue = [node for node in nodes_of_queue if serves(node, queue, site)]
        total = sum(node.processors for node in nodes_of_queue)
        if request.processors > total:
            text = f"queue {wanted!r} has {total} processors, and {request.processors} are asked for"
            raise BatchError(f"PBS cannot take the job: {text}", transient=False)
        size = max((node.processors for node in nodes_of_queue), default=1)
        free = {node.name: node.free for node in nodes_of_queue}
        groups = commands.layout(dialect, request, free, size)
        hosts: list[tuple[str, int]] = []
        if request.exclude:
            hosts = commands.beside(request, {name: idle for name, idle in free.items() if name not in request.exclude})
        return commands.Qsub(dialect, request, groups, self._longest_name, hosts)

    async def check(self, identity: Identity, request: SubmitRequest, timeout_s: float) -> None:
        """PBS can only be asked by submitting: what is checked is the queue, its size, and the options' words."""
        self._acts(identity)
        qsub = await self._qsub(request)
        qsub.argv()
        site = await self.site()
        if request.queue and all(queue.name != request.queue for queue in site.queues):
            raise BatchError(f"PBS did not take the job: there is no queue {request.queue!r}", transient=False)

    async def find(self, identity: Identity, tags: Sequence[str]) -> dict[str, str]:
        """Where several jobs carry one tag, a living one is preferred, then the latest."""
        self._acts(identity)
        if not tags:
            return {}
        wanted, dialect = set(tags), await self.dialect()
        text = await self._query(commands.list_jobs(dialect, ended=self._history), "list its jobs")
        jobs, unparsed = await beside(lambda: self._jobs(dialect, text, self._clock()))
        if unparsed:
            raise BatchError(f"{unparsed} rows of qstat's answer cannot be read", transient=True)
        ours = [row.view for row in jobs if row.view.mark in wanted and row.view.user == identity.user]
        ours.sort(key=lambda job: (not job.state.ended, number(job.id)))
        return {job.mark: job.base_id for job in ours}

    async def list_jobs(self, ids: Sequence[str]) -> list[BatchJobView]:
        rows, unparsed = await self._rows_of(ids) if ids else ([], 0)
        if unparsed:
            raise BatchError(f"{unparsed} rows of qstat's answer cannot be read", transient=True)
        return [row.view for row in rows]

    async def cancel(self, identity: Identity, ids: Sequence[str]) -> None:
        acts = self._acts(identity)
        if not ids:
            return
        result = await self._act_time.run(lambda seconds: acts.run(commands.delete(ids), seconds))
        problem = refusals.cancel_refusal(result)
        if problem is not None:
            raise problem

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
        acts = self._acts(identity)
        if walltime_s is not None:
            refuse_no_walltime(walltime_s)
            await self._alter(acts, id, commands.shorten(id, walltime_s), walltime_s, "shorten job {}")
        if begins is False:
            raise BatchError("PBS may hold a job that runs: none is kept from beginning", transient=False)
        if begin_in_s is not None and begin_in_s <= 0:
            begins = True  # what is to begin later is held meanwhile
        if hold is not None or begins:
            await self._hold(acts, id, bool(hold))

    async def waited_for(self, identity: Identity, ids: Sequence[str]) -> set[str]:
        self._acts(identity)
        dialect = await self.dialect()
        text = await self._query(commands.list_jobs(dialect), "list its jobs")
        jobs, _ = await beside(lambda: self._jobs(dialect, text, self._clock()))
        named = {states.number_of(other) for row in jobs if not row.view.state.ended for other in row.waits_for}
        return {id for id in ids if states.number_of(id) in named}

    async def reduce(self, identity: Identity, id: str, *, held: bool) -> None:
        acts = self._acts(identity)
        qalter = commands.reduce(await self.dialect(), id, REDUCED_S)
        await self._alter(acts, id, qalter, REDUCED_S, "make job {} smaller")
        if held:
            await self._hold(acts, id, False)

    async def set_aside(self, identity: Identity, id: str) -> None:
        """`qrerun` is for operators."""
        raise BatchError("PBS lets no user put a job that runs back into the queue", transient=False)

    async def _hold(self, acts: Acts, id: str, held: bool) -> None:
        result = await self._act_time.run(lambda seconds: acts.run(commands.hold(id, held), seconds))
        if result.code != 0:
            raise refusals.refusal(result, f"{'hold' if held else 'release'} job {id}")

    async def _alter(self, acts: Acts, id: str, qalter: Sequence[str], walltime_s: float, doing: str) -> None:
        """A time-out says nothing: Torque's qalter hangs once it has done its work. The job itself shows it."""
        try:
            result = await acts.run(qalter, self._change_timeout_s)
        except CommandTimedOut:
            found = await self._history_of([id])
            if not any(row.view.walltime_s == max(1, round(walltime_s)) for row in found):
                raise
            return
        if result.code != 0:
            raise refusals.refusal(result, doing.format(id))

    async def outcomes(self, ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        """By the server's history (OpenPBS) or its completed jobs (Torque). The exit files speak for what is forgotten,
        and for everything where the server does not answer.
        """
        if not ids:
            return {}
        found: dict[str, BatchEnd] = {}
        problem: BatchError | None = None
        try:
            for row in await self._history_of(list(ids)) if self._history else ():
                view = row.view
                key = view.id if view.id in ids else states.number_of(view.id)
                theirs = key not in marks or marks[key].is_on(view.mark, view.submit_s)
                if view.state.ended and key in ids and theirs:
                    found[key] = BatchEnd(view.state, view.exit_code, view.end_s, "controller", row.why)
        except BatchError as error:
            problem = error
        if unknown := {id: path for id, path in ids.items() if id not in found}:
            found |= await exit_files(unknown, self._read, self._user_at)
        if problem is not None and not found:
            raise problem
        return found

    def worker_script(self, request: WorkerScript) -> str:
        return script.worker_script(request)

    def rigid_command(self, argv: Sequence[str], processors: int) -> str:
        return script.rigid_command(argv, processors)

    async def mailing(self) -> Mailing:
        return Mailing("")

    async def doctor(self) -> list[tuple[str, bool, str]]:
        found = await checks.doctor(self, self.commands)
        return found if self.helper is None else [*found, await asyncio.to_thread(self.helper.examined)]

    async def close(self) -> None:
        """Nothing is held open between commands."""
