"""What a transaction of the manager works with: one session, one moment, and the rows of the jobs it touches."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.config import Order, QueueSettings, Settings
from ejbd.core.bundling.plan import BundlingParameters, ElasticState, HeldSubjob
from ejbd.core.cost import Guess, Measurement, MoveCost, move_cost
from ejbd.core.penalty import Calibration, Penalty, Ratio, penalty
from ejbd.core.progress import degree
from ejbd.core.shapes import UNLIMITED
from ejbd.core.view import ClusterView
from ejbd.manager.history import LEARNT_TOPIC, Known, calibrations, measured_speed, measurements, obstacles, ratios
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.spool import Spool
from ejbd.store.models import Epoch, Event, Job, Launch, Operation, QueueOverride, Subjob, Worker
from ejbd.store.states import TERMINAL_SUBJOB, EpochState, JobState, LaunchState, OperationState, SubjobState
from ejbd.store.transitions import wake

MOVING_ENGINES = frozenset({"application", "dmtcp"})  # that can take an application from one placement to another
MOST_KNOWN = 4096  # applications
CLOCKS_S = 2.0  # what ends so near to its limit was ended by it; clocks differ a little, and Slurm tells whole seconds
UNFINISHED_OPERATION = (OperationState.QUEUED, OperationState.LEASED)

_NUMBERS = re.compile(r"([0-9]+)")
_One = TypeVar("_One")

Offer = tuple[str, dict[str, Any]]
"""A node, and what its worker said of it: `engines`, `dmtcp`."""


@dataclass
class Context:
    """One transaction at time `now` (seconds since the epoch). `view` is the latest poll's, if there was one.

    `spool_speed`: bytes a second that the daemon itself wrote, for as long as no checkpoint has told better.
    `up_since`: when this daemon started, before which no worker could tell it anything.
    """

    session: Session
    now: float
    settings: Settings
    spool: Spool
    view: ClusterView | None = None
    seen: dict[str, float] = field(default_factory=dict)  # worker id -> last heard of
    offers: deque[Offer] = field(default_factory=deque)  # of the latest workers
    plugin: tuple[str | None, str] | None = None  # of DMTCP, once somebody has asked (ejbd.manager.together)
    spool_speed: float | None = None
    known: Known = field(default_factory=Known)  # what earlier transactions have read of the history
    up_since: float = 0.0
    looked_s: float | None = None  # when the poll before this one looked
    fitting: dict[tuple[str, str], float] = field(default_factory=dict)  # (queue, batch job that fits) -> since when
    left_behind: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # reports, by their file
    _queues: dict[str, QueueSettings] | None = None

    def waited_s(self, since_s: float) -> float:
        """For how long since `since_s` workers could have told us something: not while there was no daemon."""
        return self.now - max(since_s, self.up_since)

    def queue_settings(self, name: str) -> QueueSettings:
        """The TOML file's settings of a queue with what was changed at run time on top."""
        if self._queues is None:
            self._queues = {
                queue: self.settings.queue_settings(queue).model_copy(
                    update=QueueSettings(**changed).model_dump(include=set(changed))
                )
                for queue, changed in self.session.execute(select(QueueOverride.name, QueueOverride.settings))
            }
        return self._queues.get(name) or self.settings.queue_settings(name)

    def moves(self, application: str) -> list[Measurement]:
        """What the moves of an application cost, newest first."""
        return self._remembered(self.known.moves, measurements, application)

    def ratios(self, application: str) -> list[Ratio]:
        """What over-subscription made of an application's speed, newest first."""
        return self._remembered(self.known.ratios, ratios, application)

    def calibrations(self, application: str) -> list[Calibration]:
        """What over-subscription made of an application's whole runs, newest first."""
        return self._remembered(self.known.calibrations, calibrations, application)

    def obstacle(self, application: str) -> str:
        """What keeps an application from being moved, by its earlier jobs, or ""."""
        found = self._remembered(self.known.obstacles, obstacles, application)
        return next((why for why, until_s in found if self.now < until_s), "")

    def _remembered(
        self, known: dict[str, list[_One]], read: Callable[[Session, str], list[_One]], application: str
    ) -> list[_One]:
        found = known.get(application)
        if found is None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            found = known[application] = read(self.session, application) if application else []
        return found

    def forget_known(self) -> None:
        """There is a new measurement: this transaction reads again what it needs, and so do others after its commit."""
        self.known = Known()
        wake(self.session, LEARNT_TOPIC)

    def bytes_per_s(self) -> float | None:
        """How fast the spool is written; None where nobody has tried."""
        if self.known.speed is None:
            self.known.speed = measured_speed(self.session) or self.spool_speed
        return self.known.speed


@dataclass
class JobWorld:
    """One job with the rows that belong to it. Loaded when first asked for, and kept for the transaction."""

    ctx: Context
    job: Job
    _subjobs: list[Subjob] | None = None
    _workers: list[Worker] | None = None
    _epoch: Epoch | None = None
    _epoch_loaded: bool = False
    _cost: MoveCost | None = None

    @property
    def spec(self) -> JobSpec:
        return JobSpec.from_json(self.job.spec)

    # -- rows ---------------------------------------------------------------------------------------------------------

    @property
    def subjobs(self) -> list[Subjob]:
        """All subjobs of the job, J0 first."""
        if self._subjobs is None:
            query = select(Subjob).where(Subjob.job_id == self.job.id).order_by(Subjob.ordinal)
            self._subjobs = list(self.ctx.session.scalars(query))
        return self._subjobs

    def subjob(self, id: str) -> Subjob | None:
        return next((s for s in self.subjobs if s.id == id), None)

    @property
    def open_subjobs(self) -> list[Subjob]:
        return [s for s in self.subjobs if SubjobState(s.state) not in TERMINAL_SUBJOB]

    @property
    def placeholder(self) -> Subjob | None:
        """J0, unless it has ended or is being given back."""
        return next((s for s in self.open_subjobs if s.role == "placeholder" and not s.releasing), None)

    @property
    def awaited(self) -> list[Subjob]:
        """Subjobs that were asked for and have not started (J0 not counted)."""
        return [
            s
            for s in self.open_subjobs
            if s.role == "subjob" and not s.releasing and s.state in (SubjobState.PLANNED, SubjobState.PENDING)
        ]

    @property
    def workers(self) -> list[Worker]:
        """Workers that are believed to be alive, by subjob and node: the first node's is the first, as in sbatch."""
        if self._workers is None:
            query = (
                select(Worker)
                .where(Worker.job_id == self.job.id, Worker.alive)
                .order_by(Worker.subjob_id, Worker.registered_s, Worker.id)
            )
            self._workers = sorted(self.ctx.session.scalars(query), key=lambda w: (w.subjob_id, _natural(w.node)))
        return self._workers

    def workers_of(self, subjob: str) -> list[Worker]:
        return [w for w in self.workers if w.subjob_id == subjob and w.alive]

    def worker(self, id: str | None) -> Worker | None:
        return next((w for w in self.workers if w.id == id and w.alive), None)

    def ready(self, subjob: Subjob) -> bool:
        """Whether every node of a subjob has a worker that answers."""
        if subjob.state != SubjobState.RUNNING or subjob.releasing:
            return False
        return sum(w.processors for w in self.workers_of(subjob.id)) >= subjob.processors

    @property
    def epoch(self) -> Epoch | None:
        """The latest placement."""
        if not self._epoch_loaded:
            query = select(Epoch).where(Epoch.job_id == self.job.id).order_by(Epoch.number.desc()).limit(1)
            self._epoch = self.ctx.session.scalars(query).first()
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
        """The launch that is under way."""
        query = select(Launch).where(Launch.job_id == self.job.id, Launch.state == LaunchState.ACTIVE)
        return self.ctx.session.scalars(query).first()

    def operations(self, *kinds: str, epoch: int | None = None, unfinished: bool = False) -> list[Operation]:
        query = select(Operation).where(Operation.job_id == self.job.id, Operation.kind.in_(kinds))
        if epoch is not None:
            query = query.where(Operation.epoch == epoch)
        if unfinished:
            query = query.where(Operation.state.in_(UNFINISHED_OPERATION))
        return list(self.ctx.session.scalars(query.order_by(Operation.seq)))

    def count_events(self, kind: str) -> int:
        query = select(func.count()).select_from(Event).where(Event.job_id == self.job.id, Event.kind == kind)
        return int(self.ctx.session.scalar(query) or 0)

    # -- as the policies see it ---------------------------------------------------------------------------------------

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

    @property
    def not_movable(self) -> str:
        """Why a job of engine `dmtcp` is never moved, by what is known of it or of its application; "" where it is."""
        job = self.job
        if job.engine != "dmtcp" or job.not_movable:
            return job.not_movable
        epoch = self.epoch if job.state == JobState.RUNNING else None
        if epoch is not None and epoch.restart_from is not None:
            return ""  # it was moved itself, and knows better
        return self.ctx.obstacle(job.application or "")

    @property
    def cost(self) -> MoveCost:
        """What the job's next move costs, as far as is known."""
        if self._cost is None:
            settings = self.ctx.queue_settings(self.job.queue)
            epoch = self.live_epoch if self.job.state == JobState.RUNNING else None
            moves = self.ctx.moves(self.job.application or "")
            self._cost = move_cost(
                moves,
                epoch.processors if epoch is not None else None,
                None if moves or epoch is None else self._guess(epoch),
                configured_s=settings.lambda_s,
                floor_s=settings.lambda_floor_s,
                job_s=self.job.spec.get("lambda_s"),
                look_s=self.ctx.settings.poll_s,
            )
        return self._cost

    def _guess(self, epoch: Epoch) -> Guess | None:
        """By the memory of the ranks, once every worker has told, and by the speed of the spool."""
        ids = {worker for _, worker, _ in epoch.placement}
        sizes = [w.resident_bytes for w in self.workers if w.id in ids]
        known = [size for size in sizes if size is not None]
        if len(known) < len(ids):
            return None
        speed = self.ctx.bytes_per_s()
        return Guess(sum(known), speed) if speed else None

    @property
    def penalty(self) -> Penalty:
        """Delta for where the job's ranks are now (for any degree while they are nowhere), as far as is known."""
        epoch = self.live_epoch if self.job.state == JobState.RUNNING else None
        now = degree(epoch.size, epoch.processors) if epoch is not None else 1
        application = self.job.application or ""
        return penalty(
            self.ctx.ratios(application),
            now if now > 1 else None,
            calibrated=self.ctx.calibrations(application),
            configured=self.ctx.queue_settings(self.job.queue).delta,
            told=self.job.spec.get("delta"),
        )

    def parameters(self) -> BundlingParameters:
        """The queue's policy parameters with the job's own on top, in the units of the queue."""
        settings = self.ctx.queue_settings(self.job.queue)
        spec = self.job.spec
        queue = self.ctx.view.queue(self.job.queue) if self.ctx.view else None
        return BundlingParameters(
            omax=spec.get("omax") or settings.omax,
            lambda_s=self.cost.lambda_s,
            delta=self.penalty.delta,
            processor_quantum=queue.processor_quantum if queue else 1,
            walltime_quantum_s=self.ctx.view.walltime_quantum_s if self.ctx.view else 1.0,
            max_walltime_s=queue.max_walltime_s if queue and queue.max_walltime_s else UNLIMITED,
            suspend=settings.suspend and not holds_shell(self.job),
            least_work_first=settings.order is Order.LEAST_WORK,
            whole_slots=settings.whole_slots,
            act_in_migration=settings.act_in_migration,
            min_left_s=settings.min_left_s,
        )

    def cut_short(self, subjob: Subjob) -> bool:
        """Whether the batch system means to end a subjob before the walltime that it was asked for (an operator or a
        preemption has shortened it): what comes of that is not the application's doing."""
        asked = (subjob.start_s if subjob.start_s is not None else self.ctx.now) + subjob.walltime_s
        return subjob.end_s is not None and subjob.end_s < asked - CLOCKS_S and self.ctx.now < asked - CLOCKS_S

    def usable_end(self, subjob: Subjob) -> float:
        """Until when ranks may be planned on a subjob: so early that the lambda before it holds the last checkpoint."""
        end = usable_end(subjob, self.ctx.now)
        if subjob.role != "subjob":
            return end  # J0 is the job as it was submitted: its end is the job's
        return min(end, walltime_end(subjob, self.ctx.now) - self.cost.tail_s)

    def leave_by(self, subjob: Subjob) -> float:
        """When the last checkpoint of ranks on a subjob has to begin at the latest, lest the end come first."""
        if subjob.role != "subjob":
            return usable_end(subjob, self.ctx.now)
        return min(self.usable_end(subjob), walltime_end(subjob, self.ctx.now) - self.cost.reserve_s)

    def elastic_state(self, movable: bool, together: int | None = None) -> ElasticState:
        """The job for `ejbd.core`: what it holds now and how far it has come."""
        held = tuple(
            HeldSubjob(s.id, s.processors, self.usable_end(s), s.anchor)
            for s in self.open_subjobs
            if s.id in self.job.members and s.state == SubjobState.RUNNING
        )
        j0 = self.placeholder
        return ElasticState(
            job=self.job.id,
            processes=self.job.processes,
            requested_s=self.job.walltime_s,
            work_s=work_now(self.job, self.ctx.now),
            subjobs=held,
            stalled_until_s=self._stalled_until(),
            on_placeholder=j0 is not None and j0.id in self.job.members,
            movable=movable,
            together=together,
        )

    def _stalled_until(self) -> float | None:
        """When the move that is under way should be over; None while the ranks compute, or none is placed."""
        epoch = self.epoch if self.moving else None
        if epoch is None:
            return None
        begun = epoch.created_s if epoch.state == EpochState.LAUNCHING else epoch.stopping_s
        return max(self.ctx.now, (self.ctx.now if begun is None else begun) + self.parameters().lambda_s)


def _natural(node: str) -> list[tuple[int, str]]:
    """The order of node names by their numbers: n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.split(node)]


def holds_shell(job: Job) -> bool:
    """Whether the user's shell is in one of the job's subjobs, and would be lost with it."""
    return job.kind == "script" and not job.spec.get("restartable")


def usable_end(subjob: Subjob, now: float) -> float:
    """Until when ranks may use a subjob (absolute seconds): its walltime less what the last checkpoint needs."""
    start = subjob.start_s if subjob.start_s is not None else now
    return min(start + subjob.usable_s, walltime_end(subjob, now))


def walltime_end(subjob: Subjob, now: float) -> float:
    """When the batch system ends a subjob (absolute seconds)."""
    start = subjob.start_s if subjob.start_s is not None else now
    end = start + subjob.walltime_s
    # The batch system may have granted less, or somebody shortened it.
    return end if subjob.end_s is None else min(end, subjob.end_s)


def work_now(job: Job, now: float) -> float:
    """W: full-speed seconds done at `now` (Eq. 3)."""
    since = max(0.0, now - job.work_as_of_s) if job.work_as_of_s is not None else 0.0
    return job.work_s + job.work_rate * since


def set_rate(job: Job, rate: float, now: float) -> None:
    """From now on the job makes `rate` full-speed seconds a second."""
    job.work_s = work_now(job, now)
    job.work_as_of_s = now
    job.work_rate = rate
