"""The tables. Times are seconds since the epoch (UTC), durations are seconds, JSON columns hold plain JSON values.

One writer (:class:`ejbd.store.store.Store`) changes them. Every change of a state goes through a transition table of
:mod:`ejbd.store.states` and brings its event row in the same transaction.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ejbd.core.placing import Seat

# SQLite counts up an INTEGER PRIMARY KEY only; PostgreSQL should not run out after 2**31 events.
Serial = BigInteger().with_variant(Integer, "sqlite")
# SQLite would give the highest number again once its row was pruned; readers ask for what came after a number.
NEVER_AGAIN = {"sqlite_autoincrement": True}


class Seats(TypeDecorator[list[Seat]]):
    """Where the ranks of a placement run; in the row `[rank, worker id, processor]` each."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: list[Seat] | None, dialect: Dialect) -> list[list[Any]] | None:
        return None if value is None else [list(seat) for seat in value]

    def process_result_value(self, value: list[list[Any]] | None, dialect: Dialect) -> list[Seat] | None:
        return None if value is None else [Seat(*seat) for seat in value]


class Base(DeclarativeBase):
    metadata = MetaData(  # named, so that a later migration can name what it drops
        naming_convention={
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {dict[str, Any]: JSON, list[Any]: JSON, float: Float, str: String}


class Job(Base):
    """An elastic job, or a passed-through one (`elastic` false)."""

    __tablename__ = "jobs"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)  # arrival order
    id: Mapped[str] = mapped_column(String(16), unique=True)
    name: Mapped[str] = mapped_column(Text)
    user: Mapped[str] = mapped_column(String(256))
    queue: Mapped[str] = mapped_column(String(256))
    account: Mapped[str] = mapped_column(String(256), default="")  # as its submission names it; "": its user's default
    qos: Mapped[str] = mapped_column(String(256), default="")  # likewise
    state: Mapped[str] = mapped_column(String(16))
    incarnation: Mapped[int] = mapped_column(Integer, default=1)
    elastic: Mapped[bool] = mapped_column(Boolean)
    kind: Mapped[str] = mapped_column(String(16))  # command | script | array
    engine: Mapped[str] = mapped_column(String(32))
    application: Mapped[str] = mapped_column(String(512), default="")  # what measurements are kept under
    processes: Mapped[int] = mapped_column(Integer)
    walltime_s: Mapped[float]
    spec: Mapped[dict[str, Any]]  # the whole JobSpec
    held: Mapped[bool] = mapped_column(Boolean, default=False)
    submit_s: Mapped[float]
    start_s: Mapped[float | None]  # the first rank (or the script) ran
    end_s: Mapped[float | None]
    exit_code: Mapped[int | None] = mapped_column(Integer)
    reason: Mapped[str] = mapped_column(Text, default="")
    final_state: Mapped[str | None] = mapped_column(String(16))  # what ENDING will become
    # Progress (Eq. 3): full-speed seconds done at work_as_of_s, growing by work_rate a second since then.
    work_s: Mapped[float] = mapped_column(default=0.0)
    work_rate: Mapped[float] = mapped_column(default=0.0)
    work_as_of_s: Mapped[float | None]
    members: Mapped[list[Any]] = mapped_column(default=list)  # subjobs that the application is wanted on
    lead_worker: Mapped[str | None] = mapped_column(String(32))
    script_run: Mapped[int] = mapped_column(Integer, default=0)
    setbacks: Mapped[int] = mapped_column(Integer, default=0)  # restarts after something failed
    overruns: Mapped[int] = mapped_column(Integer, default=0)  # times it outlived what was planned
    not_before_s: Mapped[float] = mapped_column(default=0.0)  # no new subjob before (back-off)
    move_not_before_s: Mapped[float] = mapped_column(default=0.0)  # no new move before (a failed checkpoint's back-off)
    failed_starts: Mapped[int] = mapped_column(Integer, default=0)  # subjobs that did not start within their grace
    rigid_start_s: Mapped[float | None]  # the start that the batch system first promised to J0
    not_movable: Mapped[str] = mapped_column(Text, default="")  # why no checkpoint is asked of it any more
    decision_key: Mapped[str] = mapped_column(Text, default="")  # what the last recorded decision said
    expected_completion_s: Mapped[float | None]
    # Walltimes that were learned for it (ejbd.manager.facts.past.speculating). NULL: its user's own is asked for.
    walltimes: Mapped[dict[str, Any] | None]
    array_id: Mapped[str | None] = mapped_column(String(16))  # of an element of an elastic array: the array's job
    array_index: Mapped[int | None] = mapped_column(Integer)
    number: Mapped[str | None] = mapped_column(String(64))  # SLURM_JOB_ID; once told it stays (submission/numbers.py)

    __table_args__ = (
        Index("ix_jobs_state", "state"),
        Index("ix_jobs_user_submit", "user", "submit_s"),
        Index("ix_jobs_array", "array_id", "state"),
        Index("ix_jobs_number", "number"),
        NEVER_AGAIN,
    )


class Array(Base):
    """An elastic array, beside the job that stands for it. Its elements become jobs (`Job.array_id`) bit by bit."""

    __tablename__ = "arrays"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    ahead: Mapped[str] = mapped_column(Text)  # indices that are no jobs yet
    dropped: Mapped[str] = mapped_column(Text, default="")  # indices that were cancelled before they were
    most: Mapped[int | None] = mapped_column(Integer)  # jobs at a time, as its user says
    open: Mapped[int] = mapped_column(Integer, default=0)  # jobs of it that have not ended
    cancelled_by: Mapped[str | None] = mapped_column(String(256))  # then what is open is cancelled bit by bit
    changed: Mapped[bool] = mapped_column(Boolean, default=True)  # it has to be visited

    __table_args__ = (Index("ix_arrays_changed", "changed"),)


class Dependency(Base):
    """What a job of EJB waits for before it goes to the batch system; gone once that is there."""

    __tablename__ = "dependencies"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    conditions: Mapped[str] = mapped_column(Text)  # as --dependency has them, on jobs of EJB alone
    never: Mapped[bool] = mapped_column(Boolean, default=False)  # it can never be met


class Subjob(Base):
    """One batch job of an elastic job. Role `placeholder` is J0; `rigid` is a passed-through job."""

    __tablename__ = "subjobs"

    id: Mapped[str] = mapped_column(String(24), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    ordinal: Mapped[int] = mapped_column(Integer)  # 0 is J0
    role: Mapped[str] = mapped_column(String(16))  # SubjobRole
    tag: Mapped[str] = mapped_column(String(64), unique=True)
    batch_id: Mapped[str | None] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    processors: Mapped[int] = mapped_column(Integer)
    walltime_s: Mapped[float]  # asked of the batch system
    usable_s: Mapped[float]  # of it, what ranks may use: the rest is for the last checkpoint
    anchor: Mapped[bool] = mapped_column(Boolean, default=False)  # holds a shell that cannot be started again
    worker_secret: Mapped[str] = mapped_column(String(64), default="")  # docs/worker-protocol.md: what proves
    created_s: Mapped[float]
    submit_s: Mapped[float | None]
    start_s: Mapped[float | None]
    end_s: Mapped[float | None]  # planned while running, actual afterwards
    planned_start_s: Mapped[float | None]
    nodes: Mapped[list[Any]] = mapped_column(default=list)
    exit_code: Mapped[int | None] = mapped_column(Integer)
    reason: Mapped[str] = mapped_column(Text, default="")
    missing_since_s: Mapped[float | None]
    # When its ranks have to be gone: the batch system has warned of its end, or an operator drains its nodes.
    leave_by_s: Mapped[float | None]
    warned_s: Mapped[float | None]  # when the batch system warned that it will end it, or did so
    # Of an array: `all` its indices, `ended` state -> indices, `code` the highest, `running` how many (docs/slurm.md).
    elements: Mapped[dict[str, Any] | None]
    releasing: Mapped[bool] = mapped_column(Boolean, default=False)  # told to end; takes no more ranks
    joined: Mapped[bool] = mapped_column(Boolean, default=False)  # has been made a member once

    __table_args__ = (
        Index("ix_subjobs_job", "job_id"),
        Index("ix_subjobs_state", "state"),
        Index("ix_subjobs_batch", "batch_id"),
    )

    @property
    def warned(self) -> bool:
        """Whether the batch system has warned that it will end it before its time, or has done so."""
        return self.warned_s is not None


class Worker(Base):
    """One worker process on one node of a subjob."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    subjob_id: Mapped[str] = mapped_column(ForeignKey("subjobs.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    node: Mapped[str] = mapped_column(String(256))
    host: Mapped[str] = mapped_column(String(256))
    address: Mapped[str] = mapped_column(String(64))
    boot: Mapped[str] = mapped_column(String(64))
    pid: Mapped[int] = mapped_column(Integer)
    processors: Mapped[int] = mapped_column(Integer)
    alive: Mapped[bool] = mapped_column(Boolean, default=True)
    registered_s: Mapped[float]
    last_seen_s: Mapped[float]
    reports_stored: Mapped[int] = mapped_column(Integer, default=0)
    resident_bytes: Mapped[int | None] = mapped_column(BigInteger)  # memory of its ranks, as it told last
    silent_s: Mapped[float | None]  # for how long it has not been heard of while a daemon listened; NULL: it is heard

    __table_args__ = (UniqueConstraint("subjob_id", "node", "boot"), Index("ix_workers_job", "job_id"))


class Launch(Base):
    """One launch of the application."""

    __tablename__ = "launches"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    size: Mapped[int] = mapped_column(Integer)
    file: Mapped[str] = mapped_column(Text)
    together: Mapped[bool] = mapped_column(default=True)  # one rank that fails ends the others
    work_at_start_s: Mapped[float] = mapped_column(default=0.0)  # W of the job when it began
    created_s: Mapped[float]
    ended_s: Mapped[float | None]
    exit_code: Mapped[int | None] = mapped_column(Integer)


class Epoch(Base):
    """One placement of one launch's ranks."""

    __tablename__ = "epochs"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    launch_ordinal: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(16))
    size: Mapped[int] = mapped_column(Integer)
    processors: Mapped[int] = mapped_column(Integer)  # that ranks actually use
    members: Mapped[list[Any]]  # subjob ids
    placement: Mapped[list[Seat]] = mapped_column(Seats)
    restart_from: Mapped[int | None] = mapped_column(Integer)  # the epoch that made the checkpoint it resumes
    fallback: Mapped[list[Any]] = mapped_column(default=list)  # members to go back to if it does not come up
    exits: Mapped[dict[str, Any]] = mapped_column(default=dict)  # rank -> code
    checkpoint_bytes: Mapped[int | None] = mapped_column(BigInteger)
    work_at_start_s: Mapped[float] = mapped_column(default=0.0)  # W when it was launched, and again if it fails
    work_at_stop_s: Mapped[float | None]  # W that its checkpoint holds
    created_s: Mapped[float]
    running_s: Mapped[float | None]
    stopping_s: Mapped[float | None]
    ended_s: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text, default="")  # for people; programs go by the code
    code: Mapped[str] = mapped_column(String(32), default="")  # EpochCode
    # What its ranks reported of their progress: `done`, `total`, `at_s` of the last, `from_done`, `from_s` of the
    # first.
    progress: Mapped[dict[str, Any] | None]


class Move(Base):
    """What a checkpoint and the restart from it cost. Kept by application, for its next jobs, beyond its job's row."""

    __tablename__ = "moves"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    application: Mapped[str] = mapped_column(String(512))
    job_id: Mapped[str] = mapped_column(String(16))
    epoch: Mapped[int] = mapped_column(Integer)  # that was checkpointed
    at_s: Mapped[float]
    processors: Mapped[int] = mapped_column(Integer)
    nodes: Mapped[int] = mapped_column(Integer)  # workers that had ranks
    bytes: Mapped[int] = mapped_column(BigInteger)
    checkpoint_s: Mapped[float]  # asked until the last rank had ended, on the slowest node
    write_s: Mapped[float]  # of it, since the first file was there
    wait_s: Mapped[float]  # telling, and between the last rank's end and the new launch
    restart_s: Mapped[float | None]  # launch operations until all ranks ran
    to_processors: Mapped[int | None] = mapped_column(Integer)
    to_nodes: Mapped[int | None] = mapped_column(Integer)
    by_node: Mapped[list[Any]] = mapped_column(default=list)  # {node, bytes, seconds, write_s} each

    __table_args__ = (
        Index("ix_moves_application", "application", "id"),
        Index("ix_moves_job", "job_id", "epoch"),
        NEVER_AGAIN,
    )


class Speed(Base):
    """How fast a placement got on, by the progress its ranks reported. Kept by application, beyond the job's row."""

    __tablename__ = "speeds"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    application: Mapped[str] = mapped_column(String(512))
    work: Mapped[str] = mapped_column(String(64))  # the same for jobs of the same command
    job_id: Mapped[str] = mapped_column(String(16))
    launch: Mapped[int] = mapped_column(Integer)
    epoch: Mapped[int] = mapped_column(Integer)
    at_s: Mapped[float]
    processors: Mapped[int] = mapped_column(Integer)
    degree: Mapped[int] = mapped_column(Integer)  # of over-subscription; 1: full width
    units: Mapped[float]  # the application's own
    seconds: Mapped[float]  # by the clock of the file in which it tells
    total: Mapped[float | None]  # units, where it told that

    __table_args__ = (
        Index("ix_speeds_application", "application", "degree", "id"),
        Index("ix_speeds_job", "job_id", "epoch"),
        NEVER_AGAIN,
    )


class Run(Base):
    """A whole run that ended well. Kept by application, beyond its job's row, for others of its command."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    application: Mapped[str] = mapped_column(String(512))
    work: Mapped[str] = mapped_column(String(64))  # the same for jobs of the same command
    job_id: Mapped[str] = mapped_column(String(16))
    at_s: Mapped[float]
    full_s: Mapped[float]  # that it computed at full width
    over: Mapped[dict[str, Any]]  # degree of over-subscription -> seconds
    elastic: Mapped[bool | None] = mapped_column(Boolean)  # EJB ran it; false: it was passed through; NULL: not known

    __table_args__ = (
        Index("ix_runs_application", "application", "id"),
        Index("ix_runs_work", "work", "id"),
        NEVER_AGAIN,
    )


class Overhead(Base):
    """What the start or the end of a subjob took beside its moves. Kept by queue and application, beyond its job's
    row."""

    __tablename__ = "overheads"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    hop: Mapped[str] = mapped_column(String(16))  # ready | launch | back (ejbd.core.overhead)
    queue: Mapped[str] = mapped_column(String(256))
    application: Mapped[str] = mapped_column(String(512))
    job_id: Mapped[str] = mapped_column(String(16))
    subjob_id: Mapped[str] = mapped_column(String(24))
    at_s: Mapped[float]
    processors: Mapped[int] = mapped_column(Integer)
    seconds: Mapped[float]

    __table_args__ = (
        Index("ix_overheads_queue", "queue", "hop", "id"),
        Index("ix_overheads_application", "application", "hop", "id"),
        NEVER_AGAIN,
    )


class PastRun(Base):
    """How long an application ran once, for any user: what walltimes are learned from."""

    __tablename__ = "past_runs"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    key: Mapped[int] = mapped_column(BigInteger, unique=True)  # the same for the same run, however often it is told
    user: Mapped[str] = mapped_column(String(256))
    application: Mapped[str] = mapped_column(String(512))
    input_class: Mapped[str] = mapped_column(String(128))  # "": none was said
    processors: Mapped[int] = mapped_column(Integer)
    run_s: Mapped[float]
    requested_s: Mapped[float | None]
    outcome: Mapped[str] = mapped_column(String(16))  # completed | timeout | failed | cancelled
    end_s: Mapped[float]

    __table_args__ = (
        Index("ix_past_runs_application", "user", "application", "processors", "input_class", "end_s"),
        NEVER_AGAIN,
    )


class Obstacle(Base):
    """What keeps an application from being moved. Kept by application, for its next jobs, beyond its job's row."""

    __tablename__ = "obstacles"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    application: Mapped[str] = mapped_column(String(512))
    job_id: Mapped[str] = mapped_column(String(16))
    at_s: Mapped[float]
    how: Mapped[str] = mapped_column(String(16))  # failed; seen: by an earlier EJB
    why: Mapped[str] = mapped_column(Text)

    __table_args__ = (Index("ix_obstacles_application", "application", "id"), NEVER_AGAIN)


class Operation(Base):
    """One thing one worker is to do. `seq` orders them."""

    __tablename__ = "operations"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"))
    job_id: Mapped[str] = mapped_column(String(16))
    epoch: Mapped[int | None] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(16))
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16))
    lease_until_s: Mapped[float | None]
    result: Mapped[dict[str, Any] | None]
    error: Mapped[str] = mapped_column(Text, default="")
    created_s: Mapped[float]
    done_s: Mapped[float | None]

    __table_args__ = (
        Index("ix_operations_worker", "worker_id", "state"),
        Index("ix_operations_job", "job_id"),
        NEVER_AGAIN,
    )


class Intent(Base):
    """One action on the batch system: `submit`, `cancel` (of `batch_id`), `hold` or `release`."""

    __tablename__ = "intents"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(String(16))
    job_id: Mapped[str] = mapped_column(String(16))
    subjob_id: Mapped[str | None] = mapped_column(String(24))
    batch_id: Mapped[str | None] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    absences: Mapped[int] = mapped_column(Integer, default=0)  # look-ups of the tag that found nothing
    not_before_s: Mapped[float] = mapped_column(default=0.0)
    error: Mapped[str] = mapped_column(Text, default="")
    created_s: Mapped[float]
    done_s: Mapped[float | None]

    __table_args__ = (
        Index("ix_intents_state", "state"),
        Index("ix_intents_subjob", "subjob_id"),
        Index("ix_intents_job", "job_id"),
        NEVER_AGAIN,
    )


class Event(Base):
    """What happened. Append-only."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    at_s: Mapped[float]
    job_id: Mapped[str | None] = mapped_column(String(16))
    subjob_id: Mapped[str | None] = mapped_column(String(24))
    kind: Mapped[str] = mapped_column(String(48))
    data: Mapped[dict[str, Any]]

    __table_args__ = (Index("ix_events_job", "job_id", "id"), NEVER_AGAIN)


class Workflow(Base):
    """A plan of stages (docs/workflows.md), and what its stages are run with."""

    __tablename__ = "workflows"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(16), unique=True)
    name: Mapped[str] = mapped_column(String(64))
    user: Mapped[str] = mapped_column(String(256))
    state: Mapped[str] = mapped_column(String(16))  # WorkflowState
    plan: Mapped[dict[str, Any]]  # ejbd.workflow.plan.Plan
    surroundings: Mapped[dict[str, Any]]  # of its submission: cwd, env, umask, limits
    key: Mapped[str | None] = mapped_column(String(256))  # Idempotency-Key
    request_hash: Mapped[str] = mapped_column(String(64))
    cancelled_by: Mapped[str | None] = mapped_column(String(256))
    submit_s: Mapped[float]
    end_s: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text, default="")

    __table_args__ = (
        UniqueConstraint("user", "key"),
        Index("ix_workflows_state", "state"),
        NEVER_AGAIN,
    )


class WorkflowStage(Base):
    """One allocation of a workflow: a stage, or several that share it; by the name of its first stage."""

    __tablename__ = "workflow_stages"

    workflow_id: Mapped[str] = mapped_column(ForeignKey("workflows.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(16))  # StageState
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    failures: Mapped[int] = mapped_column(Integer, default=0)  # that count against its retries
    lingered: Mapped[bool] = mapped_column(Boolean, default=False)  # queued ahead in vain: not again
    job_id: Mapped[str | None] = mapped_column(String(16))  # of the latest attempt
    dropping: Mapped[bool] = mapped_column(Boolean, default=False)  # its job is being ended: what it needs has failed
    end_s: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text, default="")


class WorkflowRun(Base):
    """One attempt at an allocation: its job, which of its stages it was to run, and what it cost."""

    __tablename__ = "workflow_runs"

    workflow_id: Mapped[str] = mapped_column(ForeignKey("workflows.id"), primary_key=True)
    stage: Mapped[str] = mapped_column(String(64), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    stages: Mapped[list[Any]]
    ahead: Mapped[bool] = mapped_column(Boolean)  # queued before the stages that it needs had ended
    follows: Mapped[dict[str, Any] | None]  # batch jobs, by stage, that have to end well before Slurm starts it
    job_id: Mapped[str | None] = mapped_column(String(16))
    submit_s: Mapped[float]
    end_s: Mapped[float | None]
    outcome: Mapped[str] = mapped_column(String(16), default="")
    accounts: Mapped[dict[str, Any] | None]  # ejbd.manager.facts.flows.corehours, kept beyond the job's row

    __table_args__ = (Index("ix_workflow_runs_job", "job_id"),)


class QueueOverride(Base):
    """Settings of a queue that were changed at run time (`ejb queue set`); the TOML file gives the rest."""

    __tablename__ = "queue_overrides"

    name: Mapped[str] = mapped_column(String(256), primary_key=True)
    settings: Mapped[dict[str, Any]]
    changed_s: Mapped[float]
    changed_by: Mapped[str] = mapped_column(String(256))


class QueueWindow(Base):
    """Settings of a queue that hold in a window of the week, on top of the others; ejbd/core/calendar.py.

    Where windows meet, the one that was made last is on top.
    """

    __tablename__ = "queue_windows"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    queue: Mapped[str] = mapped_column(String(256))
    when: Mapped[str] = mapped_column(String(64))  # as ejbd.core.calendar writes it
    settings: Mapped[dict[str, Any]]
    in_force: Mapped[bool] = mapped_column(Boolean)  # as of the last poll, or of the last change of the calendar
    changed_s: Mapped[float]
    changed_by: Mapped[str] = mapped_column(String(256))

    __table_args__ = (UniqueConstraint("queue", "when"), {"sqlite_autoincrement": True})


class QueuePause(Base):
    """A queue where submissions or starts (`what`) fail; ejbd/manager/rules/queues/queuepause.py.

    No row: nothing has failed
    since the last that did not.
    """

    __tablename__ = "queue_pauses"

    name: Mapped[str] = mapped_column(String(256), primary_key=True)  # as in jobs.queue
    what: Mapped[str] = mapped_column(String(16), primary_key=True)  # submissions | starts
    whose: Mapped[str] = mapped_column(String(1024), primary_key=True, default="")  # user/account/QOS; "": all
    failures: Mapped[int] = mapped_column(Integer)  # in a row
    jobs: Mapped[list[Any]]  # the first different ones that failed
    trial: Mapped[str | None] = mapped_column(String(16))  # the job by which it is being tried
    reason: Mapped[str] = mapped_column(Text)  # of the last failure
    since_s: Mapped[float]  # the first failure
    until_s: Mapped[float | None]  # paused; NULL: not yet


class Drain(Base):
    """Nodes that an operator has asked EJB to leave by a time, until that is taken back."""

    __tablename__ = "drains"

    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    nodes: Mapped[list[Any]]
    by_s: Mapped[float]
    asked_s: Mapped[float]
    asked_by: Mapped[str] = mapped_column(String(256))
    free_s: Mapped[float | None]  # when no elastic job was left there for the first time

    __table_args__ = (NEVER_AGAIN,)


class IdempotencyKey(Base):
    """A submission that was answered: the same key and body get the same job."""

    __tablename__ = "idempotency_keys"

    user: Mapped[str] = mapped_column(String(256), primary_key=True)
    key: Mapped[str] = mapped_column(String(256), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(String(16))
    created_s: Mapped[float]

    __table_args__ = (Index("ix_idempotency_keys_job", "job_id"),)


class Mark(Base):
    """What the database says about itself: `database`, its name for life; `term`, the number of the daemon that writes
    or wrote last."""

    __tablename__ = "marks"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class DailyRun(Base):
    """Up to which moment something that is done once a day was done; ejbd/manager/service/daytimes.py."""

    __tablename__ = "daily_runs"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    due_s: Mapped[float]  # the moment that was kept, as the calendar has it
    ended_s: Mapped[float | None]  # when it was done; none: counted from here on, and not done yet


class OtherJob(Base):
    """A batch job that is not EJB's, as polls saw it. Written where something changed; ejbd/manager/poll/others.py.

    `ready_s`: since when it waits for nothing but room. `open`: it was not seen to end. `end_s` is the actual end; of
    a job that is not open and has none it is not known.
    """

    __tablename__ = "other_jobs"

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=False)
    batch_id: Mapped[str] = mapped_column(String(64))
    user: Mapped[str] = mapped_column(String(256))
    queue: Mapped[str] = mapped_column(String(256))
    processors: Mapped[int] = mapped_column(Integer)
    walltime_s: Mapped[float | None]
    submit_s: Mapped[float | None]
    ready_s: Mapped[float | None]
    start_s: Mapped[float | None]
    end_s: Mapped[float | None]
    open: Mapped[bool] = mapped_column(Boolean)
    changed_s: Mapped[float]

    __table_args__ = (Index("ix_other_jobs_open", "open", "changed_s"), Index("ix_other_jobs_start", "start_s"))


class OtherGap(Base):
    """A time in which no poll looked for so long that a job may have come and gone unseen."""

    __tablename__ = "other_gaps"

    until_s: Mapped[float] = mapped_column(primary_key=True)
    from_s: Mapped[float]


class OtherReplay(Base):
    """A day (UTC) that was replayed for what other jobs gained and lost; ejbd/manager/service/hindsight.py."""

    __tablename__ = "other_replays"

    day_s: Mapped[float] = mapped_column(primary_key=True)
    as_of_s: Mapped[float]  # what was known then
    away_s: Mapped[float]  # of the day, without a poll
    unknown: Mapped[int] = mapped_column(Integer)  # jobs that ended without being seen to: taken to their walltime
    left_out: Mapped[int] = mapped_column(Integer)  # jobs that a replay cannot place, or of no known start


class OtherDay(Base):
    """What a user's other jobs of a queue, which started on a day (UTC), gained and lost by elastic ones."""

    __tablename__ = "other_days"

    day_s: Mapped[float] = mapped_column(primary_key=True)
    user: Mapped[str] = mapped_column(String(256), primary_key=True)
    queue: Mapped[str] = mapped_column(String(256), primary_key=True)
    jobs: Mapped[int] = mapped_column(Integer)
    gained: Mapped[int] = mapped_column(Integer)
    gained_s: Mapped[float]
    lost: Mapped[int] = mapped_column(Integer)
    lost_s: Mapped[float]
    error_s: Mapped[float]
    before_real_s: Mapped[float]


class Token(Base):
    """A user's bearer token, kept as a SHA-256 digest."""

    __tablename__ = "tokens"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user: Mapped[str] = mapped_column(String(256))
    label: Mapped[str] = mapped_column(Text, default="")
    created_s: Mapped[float]
    expires_s: Mapped[float | None]
    scope: Mapped[str] = mapped_column(String(16), default="jobs", server_default="admin")  # ejbd/api/auth.py
