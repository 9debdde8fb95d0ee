"""The tables of jobs and of what is done for them; the others, by subject in `tables/`, are had from here, too.

Times are seconds since the epoch (UTC), durations are seconds, JSON columns hold plain JSON values.

One writer (:class:`ejbd.store.store.Store`) changes them. Every change of a state goes through a transition table of
:mod:`ejbd.store.states` and brings its event row in the same transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ejbd.core.placing import Seat
from ejbd.store.tables.base import NEVER_AGAIN, Base, Seats, Serial, only_where
from ejbd.store.tables.learned import Obstacle, Overhead, PastRun, Run, Speed
from ejbd.store.tables.others import OtherDay, OtherGap, OtherJob, OtherKept, OtherPriority, OtherReplay
from ejbd.store.tables.queues import Drain, QueueOverride, QueuePause, QueueWindow
from ejbd.store.tables.service import DailyRun, IdempotencyKey, Mark, Token
from ejbd.store.tables.workflows import Workflow, WorkflowRun, WorkflowStage

__all__ = [
    "NEVER_AGAIN",
    "Array",
    "Base",
    "DailyRun",
    "Dependency",
    "Drain",
    "Epoch",
    "Event",
    "IdempotencyKey",
    "Intent",
    "Job",
    "Launch",
    "Mark",
    "Move",
    "Obstacle",
    "Operation",
    "OtherDay",
    "OtherGap",
    "OtherJob",
    "OtherKept",
    "OtherPriority",
    "OtherReplay",
    "Overhead",
    "PastRun",
    "QueueOverride",
    "QueuePause",
    "QueueWindow",
    "Run",
    "Seats",
    "Serial",
    "Speed",
    "Subjob",
    "Token",
    "Worker",
    "Workflow",
    "WorkflowRun",
    "WorkflowStage",
]


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
    exit_signal: Mapped[int | None] = mapped_column(Integer)  # that ended its script, exit_code being 128 more
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
    number: Mapped[str | None] = mapped_column(String(64))  # SLURM_JOB_ID; once told it stays (batchjob/numbers.py)
    unread: Mapped[bool] = mapped_column(Boolean, default=False)  # its number is about to be read by its submitter

    __table_args__ = (
        # Without statistics SQLite takes an equality before an order: "no array" must not look like one.
        Index("ix_jobs_state", "state", "end_s", "array_id", "user"),
        Index("ix_jobs_listed", "seq", "state", "array_id", **only_where("array_id IS NULL")),
        Index("ix_jobs_user_listed", "user", "seq", "state", "array_id", **only_where("array_id IS NULL")),
        Index("ix_jobs_queue_listed", "queue", "seq", "state", "array_id", **only_where("array_id IS NULL")),
        Index("ix_jobs_user_queue", "user", "queue", "seq", "state", "array_id", **only_where("array_id IS NULL")),
        Index("ix_jobs_named", "name", "seq", "state", "array_id", **only_where("array_id IS NULL")),
        Index("ix_jobs_array", "array_id", "state", **only_where("array_id IS NOT NULL")),
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
    told_submit_s: Mapped[float | None]  # the same by the batch system's clock, as told while its tag was seen
    start_s: Mapped[float | None]
    end_s: Mapped[float | None]  # planned while running, actual afterwards
    heard_s: Mapped[float | None]  # when its workers have said that it runs, until a poll shows it
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
    stays: Mapped[bool] = mapped_column(Boolean, default=False)  # of J0: kept from beginning until its turn
    joined: Mapped[bool] = mapped_column(Boolean, default=False)  # has been made a member once

    __table_args__ = (
        Index("ix_subjobs_job", "job_id"),
        Index("ix_subjobs_state", "state", "end_s"),
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

    __table_args__ = (
        UniqueConstraint("subjob_id", "node", "boot"),
        Index("ix_workers_job", "job_id"),
        Index("ix_workers_alive", "alive"),
    )


class Launch(Base):
    """One launch of the application."""

    __tablename__ = "launches"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    size: Mapped[int] = mapped_column(Integer)
    file: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text, default="")  # of its program; "": not told
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
