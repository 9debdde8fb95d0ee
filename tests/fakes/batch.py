"""A batch system in memory, whose jobs start and end when a test says so, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ejbd.batch.base import NO_MARKS, BatchEnd, Identity, Mailing, Mark, SubmitRequest, WorkerScript
from ejbd.batch.process import CommandCount
from ejbd.core.sitelimits import SiteRules
from ejbd.core.view import (
    AccountLimit,
    BatchJobView,
    BatchState,
    ClusterView,
    FairShare,
    NodeView,
    QueueView,
    Reservations,
    SiteReservation,
)
from ejbd.errors import BatchError, SubmitOutcomeUnknown


class Clock:
    """Seconds since the epoch, moved by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class MemoryBatch:
    """Implements :class:`ejbd.batch.base.BatchSystem`; the test starts and ends jobs by their tag."""

    name = "memory"
    command_counts: Mapping[str, CommandCount] = {}

    def __init__(self, clock: Clock, free: int = 4, total: int = 32) -> None:
        self.clock = clock
        self.free = free
        self.total = total
        self.jobs: dict[str, BatchJobView] = {}
        self.requests: dict[str, SubmitRequest] = {}
        self.mails = Mailing("")
        self.held: set[str] = set()
        self.begins: dict[str, float] = {}  # not before
        self.holds_begins = False  # as PBS: what begins later is held, and let go when it is said to begin at once
        self.calls: list[str] = []
        self.silent = False
        self.lose_answers = 0  # so many submissions are taken, but time out
        self.hang_submissions = 0  # so many submissions time out and are not taken
        self.operator = True  # whether its user may raise limits
        self.lose_begins = 0  # so many times it does not answer when a job may begin
        self.lose_stays = 0  # and when one may not
        self.refuse: BatchError | None = None
        self.refuse_changes: BatchError | None = None  # to a job's size, or back into the queue
        self.awaited: set[str] = set()  # jobs that other jobs wait for
        self.refuse_in = ""  # only in this queue
        self.refuse_of = ""  # only of this account
        self.refuse_qos = ""  # only of this QOS
        self.refuse_role = ""  # only of tags that end so
        self.queues: tuple[str, ...] = ("batch",)
        self.default_walltime_s: float | None = None
        self.others: list[BatchJobView] = []
        self.reserved: tuple[SiteReservation, ...] = ()
        self.limits: tuple[AccountLimit, ...] = ()
        self.rules: SiteRules | None = SiteRules(of_all=True)  # None: the accounts do not answer
        self.fair_share: FairShare | None = None
        self.account = ""  # of jobs whose options name none
        self.blind = ""  # why the jobs of others are hidden
        self.jobs_a_processor = 1
        self.chains = False  # it waits for a job by its number, as Slurm does
        self.node_memory_mb = self.node_free_mb = 0  # what each has, and has free (0: all of it)
        self.reserves = Reservations.PROCESSORS
        self.starts_on: tuple[str, ...] = ("n1",)  # nodes of whatever starts
        self.node_processors = 0  # 0: one node has all processors; else they are on nodes of so many, filled in order

    def of(self, tag: str) -> BatchJobView:
        """The live (or last) batch job of this name."""
        found = [j for j in self.jobs.values() if j.name == tag]
        return found[-1]

    def live(self) -> list[BatchJobView]:
        self._let_begin()
        return [j for j in self.jobs.values() if not j.state.ended]

    def _let_begin(self) -> None:
        if self.holds_begins:
            return
        for id in [id for id, begin_s in self.begins.items() if begin_s <= self.clock() and id in self.jobs]:
            del self.begins[id]
            self.jobs[id] = replace(self.jobs[id], reason="", blocked=False, planned_start_s=None)

    def _begin_in(self, id: str, seconds: float) -> None:
        self.begins[id] = begin_s = self.clock() + seconds
        if self.holds_begins:
            self.jobs[id] = replace(self.jobs[id], state=BatchState.HELD if seconds > 0 else BatchState.PENDING)
        elif seconds > 0:
            self.jobs[id] = replace(self.jobs[id], reason="BeginTime", blocked=True, planned_start_s=begin_s)
        self._let_begin()

    def start(self, tag: str, *, walltime_s: float | None = None) -> None:
        job = self.of(tag)
        length = walltime_s if walltime_s is not None else job.walltime_s or 0.0
        self.jobs[job.id] = replace(
            job,
            state=BatchState.RUNNING,
            start_s=self.clock(),
            end_s=self.clock() + length,
            nodes=self.starts_on,
            planned_start_s=None,
        )

    def end(self, tag: str, state: BatchState = BatchState.COMPLETED, code: int | None = 0) -> None:
        job = self.of(tag)
        self.jobs[job.id] = replace(job, state=state, end_s=self.clock(), exit_code=code)

    def stand(self, tag: str, limit: str = "") -> None:
        """A limit keeps a pending job from starting ("": nothing does any more)."""
        job = self.of(tag)
        self.jobs[job.id] = replace(job, reason=limit, blocked=bool(limit), limited=bool(limit), planned_start_s=None)

    def forget(self, tag: str) -> None:
        del self.jobs[self.of(tag).id]

    def give_again(self, *, user: str = "ada", **told: Any) -> list[str]:
        """The controller has lost its state: each number is a stranger's job by now, submitted at this moment.

        It bears no tag, and runs. `told`: what else a listing shows of it.
        """
        now = self.clock()
        for id, job in self.jobs.items():
            stranger = BatchJobView(id, "stranger", user, job.queue, BatchState.RUNNING, 1, 600.0, submit_s=now)
            self.jobs[id] = replace(stranger, start_s=now, end_s=now + 600, nodes=("n1",), **told)
        return list(self.jobs)

    async def submit_again(self, id: str) -> str:
        """A second batch job of the same request, as by a submission that was thought lost."""
        return await self.submit(Identity("ada"), self.requests[id])

    # -- the protocol -------------------------------------------------------------------------------------------------

    async def observe(self) -> ClusterView:
        self._call("observe")
        self._let_begin()
        width, nodes, free = self.node_processors or self.total, [], self.free
        for index in range(-(-self.total // width)):
            nodes.append(NodeView(f"n{index + 1}", width, min(width, free), True, self.queues))
            if self.node_memory_mb:
                has_mb, free_mb = self.node_memory_mb, self.node_free_mb or self.node_memory_mb
                nodes[-1] = replace(nodes[-1], memory_mb=has_mb, free_memory_mb=free_mb)
            free -= nodes[-1].free
        queues = tuple(
            QueueView(
                name,
                True,
                None,
                1,
                self.total,
                name == "batch",
                default_walltime_s=self.default_walltime_s,
                jobs_a_processor=self.jobs_a_processor,
            )
            for name in self.queues
        )
        jobs = (*self.others, *self.jobs.values())  # others were there before
        view = ClusterView(
            self.clock(), tuple(nodes), jobs, queues, self.reserves, site_reservations=self.reserved, blind=self.blind
        )
        return replace(view, limits=self.limits, fair_share=self.fair_share, chains=self.chains)

    async def site_rules(self) -> SiteRules:
        if self.rules is None:
            raise BatchError("the accounts do not answer", transient=True)
        return self.rules

    async def submit(self, identity: Identity, request: SubmitRequest) -> str:
        self._call(f"submit {request.tag}", identity)
        of_account = self.refuse_of in ("", _option(request, "account"))
        of_account &= self.refuse_qos in ("", _option(request, "qos"))
        meant = self.refuse_in in ("", request.queue) and of_account and request.tag.endswith(self.refuse_role)
        if self.refuse is not None and meant:
            raise self.refuse
        if self.hang_submissions:
            self.hang_submissions -= 1
            raise SubmitOutcomeUnknown("sbatch did not answer")
        id = str(100 + len(self.requests))
        self.requests[id] = request
        self.jobs[id] = BatchJobView(
            id,
            request.tag,
            identity.user,
            request.queue,
            BatchState.HELD if request.hold else BatchState.PENDING,
            request.processors,
            request.walltime_s,
            submit_s=self.clock(),
            tag=request.tag,
            reason="Dependency" if request.stands_by_for else "",
            blocked=bool(request.stands_by_for),
            account=_option(request, "account") or self.account,
            qos=_option(request, "qos"),
        )
        if request.begin_in_s > 0:
            self._begin_in(id, request.begin_in_s)
        if self.lose_answers:
            self.lose_answers -= 1
            raise SubmitOutcomeUnknown("sbatch did not answer")
        return id

    async def check(self, identity: Identity, request: SubmitRequest, timeout_s: float) -> None:
        self._call(f"check {request.script}", identity)
        if self.refuse is not None:
            raise self.refuse

    async def find(self, identity: Identity, tags: Sequence[str]) -> dict[str, str]:
        self._call("find", identity)
        return {j.name: j.id for j in self.jobs.values() if j.name in tags}

    async def list_jobs(self, ids: Sequence[str]) -> list[BatchJobView]:
        self._call("list")
        return [self.jobs[id] for id in ids if id in self.jobs]

    async def cancel(self, identity: Identity, ids: Sequence[str]) -> None:
        self._call(f"cancel {' '.join(ids)}", identity)
        for id in ids:
            if id in self.jobs and not self.jobs[id].state.ended:
                self.jobs[id] = replace(self.jobs[id], state=BatchState.CANCELLED, end_s=self.clock())

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
        self._call(f"update {id}", identity)
        if walltime_s is not None:
            self._call(f"limit {id} {walltime_s:g}", identity)
            if walltime_s > (self.jobs[id].walltime_s or 0.0) and not self.operator:
                raise BatchError("Access/permission denied", transient=False)
            start_s = self.jobs[id].start_s
            end_s = None if start_s is None else start_s + walltime_s
            self.jobs[id] = replace(self.jobs[id], walltime_s=walltime_s, end_s=end_s)
        if hold is not None and id in self.jobs:
            self.jobs[id] = replace(self.jobs[id], state=BatchState.HELD if hold else BatchState.PENDING)
        if begins:
            self._call(f"begin {id}", identity)
            if self.lose_begins:
                self.lose_begins -= 1
                raise BatchError("the batch system does not answer", transient=True)
        if begins is False:
            self._call(f"stay {id}", identity)
            if self.lose_stays:
                self.lose_stays -= 1
                raise BatchError("the batch system does not answer", transient=True)
        if begin_in_s is not None and begins is None:
            self._call(f"begin {id} in {begin_in_s:g}")
            waits = (BatchState.PENDING, *((BatchState.HELD,) if self.holds_begins else ()))
            if id not in self.jobs or self.jobs[id].state not in waits:
                raise BatchError(f"job {id} is not pending any more", transient=False)
            self._begin_in(id, begin_in_s)
        if begins is not None:
            if id not in self.jobs or self.jobs[id].state is not BatchState.PENDING:
                raise BatchError(f"job {id} is not pending any more", transient=False)
            self.jobs[id] = replace(self.jobs[id], reason="" if begins else "BeginTime", blocked=not begins)
            self.begins.pop(id, None)
            if begins is False and begin_in_s is not None:
                self.begins[id] = self.clock() + begin_in_s

    async def waited_for(self, identity: Identity, ids: Sequence[str]) -> set[str]:
        self._call("waited-for", identity)
        return self.awaited & set(ids)

    async def reduce(self, identity: Identity, id: str, *, held: bool) -> None:
        self._call(f"reduce {id}", identity)
        if self.refuse_changes is not None:
            raise self.refuse_changes
        job = self.jobs[id]
        if job.state not in (BatchState.PENDING, BatchState.HELD) or (job.state is BatchState.HELD and not held):
            raise BatchError(f"job {id} does not wait for room", transient=False)
        self.jobs[id] = replace(job, state=BatchState.PENDING, processors=1, walltime_s=60.0)

    async def set_aside(self, identity: Identity, id: str) -> None:
        self._call(f"set-aside {id}", identity)
        if self.refuse_changes is not None:
            raise self.refuse_changes
        self.jobs[id] = replace(self.jobs[id], state=BatchState.HELD, start_s=None, end_s=None, nodes=())

    async def outcomes(self, ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        self._call("outcomes")
        return {}

    def worker_script(self, request: WorkerScript) -> str:
        return "#!/bin/sh\n"

    def rigid_command(self, argv: Sequence[str], processors: int) -> str:
        return " ".join(argv) + "\n"

    async def mailing(self) -> Mailing:
        return self.mails

    async def doctor(self) -> list[tuple[str, bool, str]]:
        return []

    async def close(self) -> None:
        return None

    def _call(self, what: str, identity: Identity | None = None) -> None:
        self.calls.append(what)
        assert identity in (None, Identity("ada")), f"{what} for {identity}"
        if self.silent:
            raise BatchError("the batch system does not answer", transient=True)


def _option(request: SubmitRequest, name: str) -> str:
    """The value of the last `--name=value`, as sbatch takes it."""
    values = [word.partition("=")[2] for word in request.options if word.startswith(f"--{name}=")]
    return values[-1] if values else ""
