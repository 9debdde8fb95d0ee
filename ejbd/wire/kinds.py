"""The words that tell one row of a table from another: kinds of events, intents, operations and jobs, roles of subjobs.

docs/events.md says what each kind of event means and what it carries.
"""

from __future__ import annotations

from enum import StrEnum

from ejbd.wire.states import EpochState, IntentState, JobState, SubjobState


class JobKind(StrEnum):
    """COMMAND: one launch of `argv`. SCRIPT: a shell script whose srun/mpirun/mpiexec lines are the launches. ARRAY: a
    job that stands for the elements of an elastic array, each of which is a job of its own."""

    COMMAND = "command"
    SCRIPT = "script"
    ARRAY = "array"


class SubjobRole(StrEnum):
    """What a batch job is to the job that it belongs to."""

    PLACEHOLDER = "placeholder"  # J0: the job in its original shape, which keeps its place in the queue
    SUBJOB = "subjob"  # room that was asked for on a slot
    RIGID = "rigid"  # a passed-through job: the batch system runs it as it is
    STANDBY = "standby"  # the same job once more: it keeps a place in the queue, and does not begin before it is let


AS_ASKED = frozenset({SubjobRole.RIGID, SubjobRole.STANDBY})
"""Batch jobs that run what their user submitted, as it is."""


class IntentKind(StrEnum):
    """One action on the batch system."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    STAY = "stay"  # what waits keeps its place, and does not begin
    BEGIN = "begin"  # it may


class OperationKind(StrEnum):
    """One thing that a worker is told to do (docs/worker-protocol.md)."""

    LAUNCH = "launch"
    CHECKPOINT = "checkpoint"
    STOP = "stop"
    LEAD = "lead"
    UNLEAD = "unlead"
    LAUNCH_ENDED = "launch-ended"
    DRAIN = "drain"
    SIGNAL = "signal"
    EXIT = "exit"


class EventKind(StrEnum):
    """What happened, as `<subject>.<what>`."""

    # A job. Its states, and what is told or asked of it.
    JOB_RECEIVED = "job.received"
    JOB_WAITING = "job.waiting"
    JOB_RUNNING = "job.running"
    JOB_ENDING = "job.ending"
    JOB_UNKNOWN = "job.unknown"
    JOB_COMPLETED = "job.completed"
    JOB_FAILED = "job.failed"
    JOB_TIMEOUT = "job.timeout"
    JOB_CANCELLED = "job.cancelled"
    JOB_CANCEL_ASKED = "job.cancel-asked"
    JOB_HELD = "job.held"
    JOB_RELEASED = "job.released"
    JOB_DEPENDENCY = "job.dependency"
    JOB_NOT_MOVABLE = "job.not-movable"
    JOB_AGAIN = "job.again"
    JOB_GAP = "job.gap"
    JOB_SIGNALLED = "job.signalled"
    JOB_MAIL = "job.mail"
    JOB_FAULT = "job.fault"

    # Decisions of the policy. The names behind the dot are those of ejbd.core.decision, and of what the manager adds.
    DECISION_NOTHING = "decision.nothing"
    DECISION_START = "decision.start"
    DECISION_EXPAND = "decision.expand"
    DECISION_MOVE_TO_PLACEHOLDER = "decision.move_to_placeholder"
    DECISION_KEEP_SUBJOBS = "decision.keep_subjobs"
    DECISION_START_ON_PLACEHOLDER = "decision.start_on_placeholder"
    DECISION_COMPLETE = "decision.complete"
    DECISION_SHRINK = "decision.shrink"
    DECISION_SUSPEND = "decision.suspend"
    DECISION_ANEW = "decision.anew"
    DECISION_CHECKPOINT = "decision.checkpoint"

    # A subjob. Its states, and what becomes of it beside them.
    SUBJOB_PLANNED = "subjob.planned"
    SUBJOB_PENDING = "subjob.pending"
    SUBJOB_RUNNING = "subjob.running"
    SUBJOB_COMPLETED = "subjob.completed"
    SUBJOB_FAILED = "subjob.failed"
    SUBJOB_TIMEOUT = "subjob.timeout"
    SUBJOB_CANCELLED = "subjob.cancelled"
    SUBJOB_LOST = "subjob.lost"
    SUBJOB_RELEASED = "subjob.released"
    SUBJOB_MISSING = "subjob.missing"
    SUBJOB_STRAY = "subjob.stray"
    SUBJOB_WARNED = "subjob.warned"
    SUBJOB_ADOPTED = "subjob.adopted"
    PLACEHOLDER_PLANNED = "placeholder.planned"
    PLACEHOLDER_AGAIN = "placeholder.again"

    # An action on the batch system.
    INTENT_PENDING = "intent.pending"
    INTENT_EXECUTING = "intent.executing"
    INTENT_UNKNOWN = "intent.unknown"
    INTENT_DONE = "intent.done"
    INTENT_FAILED = "intent.failed"
    INTENT_DROPPED = "intent.dropped"
    INTENT_POSTPONED = "intent.postponed"

    # The application: a script and its launches, placements of their ranks, checkpoints.
    LEAD_APPOINTED = "lead.appointed"
    SCRIPT_ENDED = "script.ended"
    LAUNCH_ASKED = "launch.asked"
    LAUNCH_ANEW = "launch.anew"
    LAUNCH_REFUSED = "launch.refused"
    LAUNCH_ENDED = "launch.ended"
    EPOCH_LAUNCHING = "epoch.launching"
    EPOCH_RUNNING = "epoch.running"
    EPOCH_STOPPING = "epoch.stopping"
    EPOCH_STOPPED = "epoch.stopped"
    EPOCH_ENDED = "epoch.ended"
    EPOCH_FAILED = "epoch.failed"
    EPOCH_RATE = "epoch.rate"
    EPOCH_LOST = "epoch.lost"
    RANK_FAILED = "rank.failed"
    RANK_MEMORY = "rank.memory"
    CHECKPOINT_GIVEN_UP = "checkpoint.given-up"
    MOVE_FAILED = "move.failed"
    OUTPUT_LOST = "output.lost"

    # Workers and what they were told to do.
    WORKER_REGISTERED = "worker.registered"
    WORKER_LOST = "worker.lost"
    WORKER_LOG = "worker.log"
    OPERATION_FAILED = "operation.failed"

    # The daemon, its queues and its tokens: events of no job.
    DAEMON_STARTED = "daemon.started"
    CLOCK_SET = "clock.set"
    BATCH_SILENT = "batch.silent"
    BATCH_ANSWERS = "batch.answers"
    QUEUE_CHANGED = "queue.changed"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    DRAIN_ASKED = "drain.asked"
    DRAIN_FREE = "drain.free"
    DRAIN_CANCELLED = "drain.cancelled"
    TOKEN_CREATED = "token.created"
    TOKEN_REVOKED = "token.revoked"

    @property
    def subject(self) -> str:
        """What it happened to: the word before the dot."""
        return self.value.partition(".")[0]

    @property
    def what(self) -> str:
        """What happened: the words behind the dot."""
        return self.value.partition(".")[2]


# What tells that something has come into a state.
JOB_EVENT = {state: EventKind(f"job.{state.value}") for state in JobState}
SUBJOB_EVENT = {state: EventKind(f"subjob.{state.value}") for state in SubjobState}
EPOCH_EVENT = {state: EventKind(f"epoch.{state.value}") for state in EpochState}
INTENT_EVENT = {state: EventKind(f"intent.{state.value}") for state in IntentState}

# The first two leave subjobs that end, and have been told by one word since before they were two decisions. That a job
# is queued anew is told of the job.
_TOLD_BY = {
    "leave": EventKind.DECISION_SHRINK,
    "give_up": EventKind.DECISION_SHRINK,
    "again": EventKind.JOB_AGAIN,
}
DECISION = "decision."  # what the kinds of the policy's decisions begin with


def decision_event(what: str) -> EventKind:
    """The kind that tells of the policy's decision `what`. Raises ValueError for one that has none."""
    return _TOLD_BY.get(what) or EventKind(DECISION + what)
