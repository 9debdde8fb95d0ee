"""The rows of one job, each kind loaded when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import BindParameter, Select, bindparam, func, select

from ejbd.manager.facts.context import Context
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import Epoch, Event, Job, Launch, Operation, Subjob, Worker
from ejbd.store.states import TERMINAL_SUBJOB, EpochState, JobState, LaunchState, OperationState, SubjobState
from ejbd.wire.hostlists import natural
from ejbd.wire.kinds import EventKind, OperationKind, SubjobRole

UNFINISHED_OPERATION = (OperationState.QUEUED, OperationState.LEASED)

# Made once: to make a query takes as long as SQLite takes to answer it, and each word of a worker asks several.
_OF: BindParameter[str] = bindparam("job")
_SUBJOBS = select(Subjob).where(Subjob.job_id == _OF).order_by(Subjob.ordinal)
_WORKERS = (
    select(Worker).where(Worker.job_id == _OF, Worker.alive).order_by(Worker.subjob_id, Worker.registered_s, Worker.id)
)
_EPOCH = select(Epoch).where(Epoch.job_id == _OF).order_by(Epoch.number.desc()).limit(1)
_LAUNCH = select(Launch).where(Launch.job_id == _OF, Launch.state == LaunchState.ACTIVE)
_LAUNCHED = select(Launch.ordinal).where(Launch.job_id == _OF).limit(1)
_LAST_LAUNCH = select(Launch).where(Launch.job_id == _OF).order_by(Launch.ordinal.desc()).limit(1)
_OPERATIONS = (
    select(Operation)
    .where(Operation.job_id == _OF, Operation.kind.in_(bindparam("kinds", expanding=True)))
    .order_by(Operation.seq)
)
_OPERATIONS_OF_EPOCH = _OPERATIONS.where(Operation.epoch == bindparam("epoch"))
_UNFINISHED = Operation.state.in_(UNFINISHED_OPERATION)
_OPERATIONS_ASKED = {
    (False, False): _OPERATIONS,
    (False, True): _OPERATIONS.where(_UNFINISHED),
    (True, False): _OPERATIONS_OF_EPOCH,
    (True, True): _OPERATIONS_OF_EPOCH.where(_UNFINISHED),
}  # of one epoch, and those that are not finished
_EVENTS = select(func.count()).select_from(Event).where(Event.job_id == _OF, Event.kind == bindparam("kind"))
_ENGINE = (
    select(Operation.payload["engine"].as_string())
    .where(Operation.job_id == _OF, Operation.kind == OperationKind.LAUNCH, Operation.epoch == bindparam("epoch"))
    .limit(1)
)


@dataclass
class JobRows:
    """One job with the rows that belong to it. Loaded when first asked for, and kept for the transaction."""

    ctx: Context
    job: Job
    _subjobs: list[Subjob] | None = None
    _workers: list[Worker] | None = None
    _epoch: Epoch | None = None
    _epoch_loaded: bool = False
    told_s: float | None = None  # when a worker told of the first failure that it reports now; None: just now
    _launch: Launch | None = None
    _engines: dict[int, str] = field(default_factory=dict)

    def read_rows(self, query: Select[Any], **given: Any) -> list[Any]:
        """What a query about this job finds: of each row its first column."""
        return list(self.ctx.session.scalars(query, {"job": self.job.id, **given}))

    def read_again(self) -> None:
        """Forget the rows that were loaded: some of them may have been taken back."""
        self._subjobs = self._workers = self._epoch = self._launch = None
        self._epoch_loaded = False

    @cached_property
    def spec(self) -> JobSpec:
        return JobSpec.from_json(self.job.spec)

    @property
    def subjobs(self) -> list[Subjob]:
        """All subjobs of the job, J0 first."""
        if self._subjobs is None:
            self._subjobs = self.read_rows(_SUBJOBS)
        return self._subjobs

    def subjob(self, id: str) -> Subjob | None:
        return next((s for s in self.subjobs if s.id == id), None)

    @property
    def open_subjobs(self) -> list[Subjob]:
        return [s for s in self.subjobs if SubjobState(s.state) not in TERMINAL_SUBJOB]

    @property
    def placeholder(self) -> Subjob | None:
        """J0, unless it has ended or is being given back."""
        return next((s for s in self.open_subjobs if s.role == SubjobRole.PLACEHOLDER and not s.releasing), None)

    @property
    def awaited(self) -> list[Subjob]:
        """Subjobs that were asked for and have not started (J0 not counted)."""
        return [
            s
            for s in self.open_subjobs
            if s.role == SubjobRole.SUBJOB and not s.releasing and s.state in (SubjobState.PLANNED, SubjobState.PENDING)
        ]

    @property
    def frozen(self) -> bool:
        """Whether the batch system has suspended part of what the job runs on.

        Nothing there can answer, and what the job has is left alone until it runs on.
        """
        epoch = self.live_epoch
        hit = {*self.job.members, *(epoch.members if epoch is not None else ())}
        return any(s.state == SubjobState.SUSPENDED and (s.anchor or s.id in hit) for s in self.open_subjobs)

    @property
    def workers(self) -> list[Worker]:
        """Workers that are believed to be alive, by subjob and node: the first node's is the first, as in sbatch."""
        if self._workers is None:
            self._workers = sorted(self.read_rows(_WORKERS), key=lambda w: (w.subjob_id, natural(w.node)))
        return self._workers

    def workers_of(self, subjob: str) -> list[Worker]:
        return [w for w in self.workers if w.subjob_id == subjob and w.alive]

    def worker(self, id: str | None) -> Worker | None:
        return next((w for w in self.workers if w.id == id and w.alive), None)

    def ready(self, subjob: Subjob) -> bool:
        """Whether every node of a subjob has a worker that answers."""
        return subjob.state == SubjobState.RUNNING and not subjob.releasing and self.all_came(subjob)

    def all_came(self, subjob: Subjob) -> bool:
        """Whether there is a worker for every processor of a subjob, in whatever state it is."""
        return sum(w.processors for w in self.workers_of(subjob.id)) >= subjob.processors

    @property
    def epoch(self) -> Epoch | None:
        """The latest placement."""
        if not self._epoch_loaded:
            self._epoch = next(iter(self.read_rows(_EPOCH)), None)
            self._epoch_loaded = True
        return self._epoch

    def set_epoch(self, epoch: Epoch) -> None:
        self._epoch, self._epoch_loaded = epoch, True

    @property
    def live_epoch(self) -> Epoch | None:
        epoch = self.epoch
        return epoch if epoch is not None and EpochState(epoch.state).live else None

    @property
    def launch(self) -> Launch | None:
        """The launch that is under way: the same one until it has ended."""
        if self._launch is None or self._launch.state != LaunchState.ACTIVE:
            self._launch = next(iter(self.read_rows(_LAUNCH)), None)
        return self._launch

    @property
    def launched(self) -> bool:
        """Whether there has been any launch: of whichever run of the script, on whichever lead."""
        return bool(self.read_rows(_LAUNCHED))

    @property
    def last_launch(self) -> Launch | None:
        """The launch that was asked for last, ended or not."""
        return next(iter(self.read_rows(_LAST_LAUNCH)), None)

    def operations(self, *kinds: OperationKind, epoch: int | None = None, unfinished: bool = False) -> list[Operation]:
        query = _OPERATIONS_ASKED[epoch is not None, unfinished]
        return self.read_rows(query, kinds=kinds, **({} if epoch is None else {"epoch": epoch}))

    def runs_under(self, epoch: Epoch) -> str:
        """The engine by which the ranks of an epoch were started; "" before anything was told to a worker."""
        if epoch.number not in self._engines:
            told = next(iter(self.read_rows(_ENGINE, epoch=epoch.number)), None)
            if not told:
                return ""
            self._engines[epoch.number] = told
        return self._engines[epoch.number]

    def count_events(self, kind: EventKind) -> int:
        return int(self.read_rows(_EVENTS, kind=kind)[0])

    @property
    def moving(self) -> bool:
        """Whether ranks are being launched or moved, or are wanted elsewhere than they are."""
        if self.job.state != JobState.RUNNING:
            return False  # before its placement is looked up: most jobs wait
        epoch = self.epoch
        if epoch is None:
            return False
        if epoch.state == EpochState.RUNNING:
            return set(epoch.members) != set(self.job.members)
        return epoch.state in (EpochState.LAUNCHING, EpochState.STOPPING, EpochState.STOPPED)
