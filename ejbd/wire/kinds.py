"""The words that tell one row of a table from another: kinds of events, intents, operations and jobs, roles of subjobs.

docs/events.md says what each kind of event means and what it carries.
"""

from __future__ import annotations

from enum import StrEnum

from ejbd.wire.states import EpochState, IntentState, JobState, StageState, SubjobState, WorkflowState


class JobKind(StrEnum):
    """COMMAND: one launch of `argv`. SCRIPT: a shell script; its srun/mpirun/mpiexec lines are the launches. ARRAY: a
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
    ASIDE = "aside"  # J0 that started while the job goes on without it: its number is the job's until the job has ended


AS_ASKED = frozenset({SubjobRole.RIGID, SubjobRole.STANDBY})
"""Batch jobs that run what their user submitted, as it is."""
J0_ROLES = frozenset({SubjobRole.PLACEHOLDER, SubjobRole.ASIDE})
"""Batch jobs with a number that others may take for the job's."""


class IntentKind(StrEnum):
    """One action on the batch system."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    STAY = "stay"  # what waits keeps its place, and does not begin
    BEGIN = "begin"  # it may
    LOWER = "lower"  # what waits is planned with less than its request
    RAISE = "raise"  # what runs may run for all of it
    ASIDE = "aside"  # what runs, and is not needed now, goes back into the queue and does not begin
    END = "end"  # it ends as the job did where others wait for it, and is cancelled where none does


class OperationKind(StrEnum):
    """One thing that a worker is asked to do (docs/worker-protocol.md)."""

    LAUNCH = "launch"
    CHECKPOINT = "checkpoint"
    STOP = "stop"
    LEAD = "lead"
    UNLEAD = "unlead"
    LAUNCH_ENDED = "launch-ended"
    DRAIN = "drain"
    SIGNAL = "signal"
    RESIZE = "resize"
    EXIT = "exit"


class EpochCode(StrEnum):
    """Why a placement is not what it was to be. Programs go by the code; the sentence beside it is for people alone."""

    AT_RESTART = "at_restart"  # ranks ended while they were restarted
    RIGHT_AFTER_RESTART = "right_after_restart"  # so soon after it that they were not restored
    NOT_UP = "not_up"  # in the time that a launch has
    LAUNCH_FAILED = "launch_failed"
    CHECKPOINT_INCOMPLETE = "checkpoint_incomplete"
    LATE_CHECKPOINT = "late_checkpoint"  # it met ranks that had ended
    WARNED = "warned"  # ranks ended after the batch system's warning
    ENGINE_GAVE_UP = "engine_gave_up"  # the checkpoint engine ended a rank
    SUBJOB_LOST = "subjob_lost"
    WORKER_LOST = "worker_lost"
    RANK_FAILED = "rank_failed"
    CAME_APART = "came_apart"  # a rank ended that had waited long for ranks of other workers
    CHECKPOINT_FAILED = "checkpoint_failed"  # no rank was stopped: it runs on
    BEGUN_ANEW = "begun_anew"  # what it had done is given up
    GIVEN_UP = "given_up"  # with the room that it was on
    AGAIN = "again"  # the whole job is run again
    JOB_OVER = "job_over"
    BEFORE = "before"  # of a daemon that gave no codes


class Engine(StrEnum):
    """How the ranks of an application are checkpointed and restarted. Every other list of engines is made of these."""

    APPLICATION = "application"
    DMTCP = "dmtcp"
    PROFILE = "profile"
    NONE = "none"

    @property
    def moves(self) -> bool:
        """Whether it can take an application from one placement to another."""
        return self is not Engine.NONE

    @staticmethod
    def reshapes(name: str) -> bool:
        """Whether an application under the engine of that name may go on with another number of ranks."""
        return name in (Engine.APPLICATION, Engine.PROFILE)


ENGINES = ("auto", *(engine.value for engine in Engine))
"""What a user may ask for; `auto`: what suits the job."""
MOVING_ENGINES = frozenset(engine.value for engine in Engine if engine.moves)


class EventKind(StrEnum):
    """What happened, as `<subject>.<what>`."""

    # A job. Its states, and what is reported or asked of it.
    JOB_RECEIVED = "job.received"
    JOB_ADOPTED = "job.adopted"
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
    JOB_MOVABLE = "job.movable"
    JOB_AGAIN = "job.again"
    JOB_GAP = "job.gap"
    JOB_LIMIT = "job.limit"
    JOB_ALONE = "job.alone"
    JOB_SIGNALLED = "job.signalled"
    JOB_SIGNAL_ASKED = "job.signal-asked"
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
    DECISION_EVOLVE = "decision.evolve"

    # A subjob. Its states, and what becomes of it beside them.
    SUBJOB_PLANNED = "subjob.planned"
    SUBJOB_PENDING = "subjob.pending"
    SUBJOB_RUNNING = "subjob.running"
    SUBJOB_SUSPENDED = "subjob.suspended"
    SUBJOB_COMPLETED = "subjob.completed"
    SUBJOB_FAILED = "subjob.failed"
    SUBJOB_TIMEOUT = "subjob.timeout"
    SUBJOB_CANCELLED = "subjob.cancelled"
    SUBJOB_LOST = "subjob.lost"
    SUBJOB_RELEASED = "subjob.released"
    SUBJOB_MISSING = "subjob.missing"
    SUBJOB_STRAY = "subjob.stray"
    SUBJOB_LOOKALIKE = "subjob.lookalike"
    SUBJOB_RERUN = "subjob.rerun"
    SUBJOB_WARNED = "subjob.warned"
    SUBJOB_HELD = "subjob.held"
    SUBJOB_LET_GO = "subjob.let-go"
    SUBJOB_STAYS = "subjob.stays"
    SUBJOB_MAY_BEGIN = "subjob.may-begin"
    SUBJOB_ALTERED = "subjob.altered"
    SUBJOB_ADOPTED = "subjob.adopted"
    SUBJOB_ASIDE = "subjob.aside"
    SUBJOB_ENDS_AS_JOB = "subjob.ends-as-job"
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
    EPOCH_RESIZED = "epoch.resized"
    EPOCH_RATE = "epoch.rate"
    EPOCH_LOST = "epoch.lost"
    RANK_FAILED = "rank.failed"
    RANK_MEMORY = "rank.memory"
    RANK_STUCK = "rank.stuck"
    COORDINATOR_LOST = "coordinator.lost"
    CHECKPOINT_GIVEN_UP = "checkpoint.given-up"
    MOVE_FAILED = "move.failed"
    OUTPUT_LOST = "output.lost"

    # Workers and what they were asked to do.
    WORKER_REGISTERED = "worker.registered"
    WORKER_LOST = "worker.lost"
    WORKER_LOG = "worker.log"
    OPERATION_FAILED = "operation.failed"

    # A workflow and its allocations: events of no job.
    WORKFLOW_RECEIVED = "workflow.received"
    WORKFLOW_RUNNING = "workflow.running"
    WORKFLOW_CANCEL_ASKED = "workflow.cancel-asked"
    WORKFLOW_COMPLETED = "workflow.completed"
    WORKFLOW_FAILED = "workflow.failed"
    WORKFLOW_CANCELLED = "workflow.cancelled"
    STAGE_WAITING = "stage.waiting"
    STAGE_SUBMITTING = "stage.submitting"
    STAGE_SUBMITTED = "stage.submitted"
    STAGE_COMPLETED = "stage.completed"
    STAGE_SKIPPED = "stage.skipped"
    STAGE_FAILED = "stage.failed"
    STAGE_CANCELLED = "stage.cancelled"
    STAGE_DROPPED = "stage.dropped"

    # The daemon, its queues and its tokens: events of no job.
    DAEMON_STARTED = "daemon.started"
    CLOCK_SET = "clock.set"
    BATCH_SILENT = "batch.silent"
    BATCH_ANSWERS = "batch.answers"
    BATCH_RESTS = "batch.rests"
    BATCH_SCHEDULES = "batch.schedules"
    QUEUE_CHANGED = "queue.changed"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    QUEUE_WINDOW = "queue.window"
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


# What reports that something has come into a state.
JOB_EVENT = {state: EventKind(f"job.{state.value}") for state in JobState}
SUBJOB_EVENT = {state: EventKind(f"subjob.{state.value}") for state in SubjobState}
EPOCH_EVENT = {state: EventKind(f"epoch.{state.value}") for state in EpochState}
INTENT_EVENT = {state: EventKind(f"intent.{state.value}") for state in IntentState}
WORKFLOW_EVENT = {state: EventKind(f"workflow.{state.value}") for state in WorkflowState}
STAGE_EVENT = {state: EventKind(f"stage.{state.value}") for state in StageState}

# The first two leave subjobs that end, and have been reported by one word since before they were two decisions. That a
# job is queued anew is told of the job.
_TOLD_BY = {
    "leave": EventKind.DECISION_SHRINK,
    "give_up": EventKind.DECISION_SHRINK,
    "again": EventKind.JOB_AGAIN,
}
DECISION = "decision."  # what the kinds of the policy's decisions begin with


def decision_event(what: str) -> EventKind:
    """The kind that reports the policy's decision `what`. Raises ValueError for one that has none."""
    return _TOLD_BY.get(what) or EventKind(DECISION + what)
