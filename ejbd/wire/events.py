"""The catalogue of events: what each kind means, and what its `data` holds.

`python -m ejbd.wire.events` prints it as the tables of docs/events.md. Every event that the manager writes in a test is
held to these types. Times are seconds since the epoch (UTC), durations are seconds. NotRequired: only sometimes there.
"""

# Without `from __future__ import annotations`, which would hide from typing which fields are not required.

import textwrap
import typing
from typing import Any, NamedTuple, NotRequired, TypedDict

from ejbd.wire.kinds import EventKind, IntentKind, OperationKind, SubjobRole


class Nothing(TypedDict):
    """The kind says it all."""


class Reason(TypedDict):
    """A sentence."""

    reason: str


class Staying(TypedDict):
    """A sentence, and its code."""

    reason: str
    code: str


class EndsAsJob(TypedDict):
    """`reduced`: J0 was made so small that it begins soon. `reason`: why it was not, else ""."""

    code: int
    reduced: bool
    reason: str


class Error(TypedDict):
    """A sentence about what went wrong."""

    error: str


class By(TypedDict):
    """The user that asked."""

    by: str


Step = TypedDict("Step", {"from": str, "reason": NotRequired[str]})
Step.__doc__ = "A change of state: from which, and why."


class JobStep(Step):
    """A change of state: from which, and why. `incarnation`: the new one, after a setback."""

    incarnation: NotRequired[int]


class JobReceived(TypedDict):
    """What a submission has become. `code`: of the reason, where it has one. `elements`: of an elastic array,
    its indices; `array`, `index`: of an element."""

    queue: str
    elastic: bool
    reason: str
    code: NotRequired[str]
    elements: NotRequired[str]
    array: NotRequired[str]
    index: NotRequired[int]


class CancelAsked(By):
    """The user that asked. `elements`: of an array these alone."""

    elements: NotRequired[str]


class Dependency(TypedDict):
    """Whether what it waited for is there; if not, why it can never be."""

    met: bool
    reason: str


class JobSignalled(TypedDict):
    """The signal that was sent since its time ends at `end_s`: to the script's shell, or to all ranks."""

    signal: str
    script: bool
    end_s: float


class JobSignalAsked(By):
    """The user that asked, the signal, and where it went: to the ranks, to the script's shell, or to all."""

    signal: str
    to: str


class JobMail(TypedDict):
    """Its subject (a word of --mail-type) and its recipient. `error`: why it could not be sent, or ""."""

    about: str
    to: str
    error: str


class JobAgain(TypedDict):
    """A job that ended is run again after `pause_s`, with this walltime. `queue`: where it goes into another one."""

    walltime_s: float
    pause_s: float
    reason: str
    queue: NotRequired[str]


class JobGap(TypedDict):
    """The walltime with which it is sent there. `finishes`: the probability that the run is done in it."""

    walltime_s: float
    finishes: float
    reason: str


class JobLimit(TypedDict):
    """The walltime that it has at the batch system from now on."""

    walltime_s: float
    reason: str


class JobAlone(TypedDict):
    """When its J0's workers began it, by their own clock, and that from now on it runs as it was submitted."""

    began_s: float
    reason: str


class NotMovable(TypedDict):
    """`how`: seen (its program shows it), failed (it was tried), or start. With start it ended in its first seconds
    under DMTCP, and is begun without it."""

    how: str
    reason: str


class Decided(TypedDict):
    """The policy's answer, and what it was asked. Then what a move, over-subscription, a start and an end were thought
    to cost."""

    decision: dict[str, Any]
    question: dict[str, Any]
    cost: dict[str, Any]
    penalty: dict[str, Any]
    overheads: NotRequired[dict[str, Any]]


class Leaving(TypedDict):
    """Subjobs that are left before they end (at `end_s`), and those that stay; W by then.

    `given_to`: the batch job that waits for what is left. Then there is also what the policy was asked, and its answer.
    """

    leaves: list[str]
    stays: list[str]
    end_s: float
    work_s: float
    reason: str
    given_to: NotRequired[str]
    decision: NotRequired[dict[str, Any]]
    question: NotRequired[dict[str, Any]]
    cost: NotRequired[dict[str, Any]]
    penalty: NotRequired[dict[str, Any]]
    overheads: NotRequired[dict[str, Any]]


class Evolving(TypedDict):
    """Its `steps` (seconds and places), when each begins, and the end of the last; `base`: what is held throughout."""

    steps: list[list[float]]
    starts_s: list[float]
    end_s: float
    base: int
    reason: str


class CheckpointDue(TypedDict):
    """Where the ranks are; W by then. `interval_s`: of periodic checkpoints."""

    epoch: int
    interval_s: NotRequired[float | None]
    work_s: float
    reason: str


class SubjobPlanned(TypedDict):
    """What will be asked of the batch system. Ranks may use `usable_s` of the walltime."""

    role: SubjobRole
    processors: int
    walltime_s: float
    usable_s: float


class SubjobAltered(TypedDict):
    """Its walltime as it was asked for, and as it is at the batch system now (null: as asked for again)."""

    asked_s: float
    walltime_s: float | None


class SubjobStep(Step):
    """Its id once it has one, its nodes once it runs, how its end was learnt (`source`)."""

    batch_id: NotRequired[str | None]
    nodes: NotRequired[list[str]]
    source: NotRequired[str]
    exit_code: NotRequired[int | None]


class Stray(TypedDict):
    """A batch job that bears the tag of a subjob and is not the one that EJB knows. It is cancelled."""

    batch_id: str


class Lookalike(TypedDict):
    """A batch job that bears the tag of a subjob and was submitted by its user, not by EJB: it is left alone."""

    batch_id: str


class Rerun(TypedDict):
    """A passed-through job that had ended and that the batch system runs again: it is left alone."""

    batch_id: str


class SubjobWarned(TypedDict):
    """The batch system will end it before its time."""

    end_s: float


class DrainAsked(TypedDict):
    """Nodes that elastic jobs are to be off by `by_s`, and the user that asked."""

    nodes: str
    by_s: float
    by: str


class DrainFree(TypedDict):
    """Nodes that were to be free by `by_s`, and that no elastic job runs on any more."""

    nodes: str
    by_s: float


class DrainCancelled(TypedDict):
    """Nodes that EJB may use again, and the user that asked."""

    nodes: str
    by: str


class WorkflowReceived(TypedDict):
    """A plan that was stored: its name, its user, and how many allocations it asks for."""

    workflow: str
    name: str
    user: str
    allocations: int


class WorkflowBy(By):
    """The workflow, and the user that asked."""

    workflow: str


class WorkflowStep(Step):
    """A change of a workflow's state."""

    workflow: str


class StageStep(WorkflowStep):
    """A change of state of an allocation, by the name of its first stage. `job`: of this attempt, once it is known."""

    stage: str
    attempt: int
    job: NotRequired[str]


class PlaceholderPlanned(TypedDict):
    """The start that the batch system first promised to J0."""

    start_s: float


class PlaceholderAgain(TypedDict):
    """J0 is asked for again after `pause_s`."""

    setbacks: int
    pause_s: float
    reason: str


class IntentStep(Step):
    """An action on the batch system: `number` tells it from others, `attempt` counts, `how` its id was found."""

    intent: IntentKind
    number: int
    attempt: NotRequired[int]
    batch_id: NotRequired[str | None]
    how: NotRequired[str]


class LeadAppointed(TypedDict):
    """The worker on this node starts the script for the `run`-th time."""

    node: str
    run: int


class ScriptEnded(TypedDict):
    """The script's own exit code."""

    code: int
    run: int


class LaunchAsked(TypedDict):
    """The script starts `ranks` ranks; `ordinal` counts its launches from 0."""

    ordinal: int
    ranks: int


class LaunchAnew(TypedDict):
    """The launch begins again; what it had done is lost."""

    ordinal: int
    reason: str


class LaunchRefused(TypedDict):
    """A launch of `name` in `line` (0: not known) that EJB refuses. `handled`: the script asks how it ended."""

    run: int
    name: str
    line: int
    reason: str
    handled: bool


class LaunchEnded(TypedDict):
    """The exit code of the application."""

    ordinal: int
    code: int


class EpochLaunching(TypedDict):
    """A placement: so many ranks on so many processors of these subjobs. `restart_from`: the checkpoint's epoch."""

    epoch: int
    launch: int
    processors: int
    ranks: int
    subjobs: list[str]
    restart_from: int | None


class EpochStep(Step):
    """A placement that runs makes `rate` full-speed seconds a second; `bytes` and `seconds` are its checkpoint's.

    `code`: why it is given up, for programs (EpochCode).
    """

    epoch: int
    code: NotRequired[str]
    processors: NotRequired[int]
    subjobs: NotRequired[list[str]]
    rate: NotRequired[float]
    wanted: NotRequired[list[str]]
    bytes: NotRequired[int | None]
    seconds: NotRequired[float | None]


class EpochRate(TypedDict):
    """How fast it has turned out to be, in full-speed seconds a second."""

    epoch: int
    rate: float


class EpochResized(TypedDict):
    """A placement goes on on other processors of its nodes, without a checkpoint: on so many after so many (`was`).

    `rate`: in full-speed seconds a second. `seconds`: what the slowest worker took.
    """

    epoch: int
    processors: int
    was: int
    rate: float
    seconds: float


class EpochReason(TypedDict):
    """A placement, and a sentence about it."""

    epoch: int
    reason: str


class RankFailed(TypedDict):
    """The first rank that died, and sentences about all that had died by then."""

    epoch: int
    rank: int
    code: int
    said: list[str]


class RankMemory(TypedDict):
    """A rank that the kernel killed, and on which node: its job's processes there wanted more than they may have."""

    epoch: int
    rank: int
    node: str


class RankStuck(TypedDict):
    """`seconds`: for how long."""

    epoch: int
    rank: int
    seconds: float


class CheckpointGivenUp(TypedDict):
    """Its restart kept failing; an older one is resumed (null: none, the launch begins anew)."""

    epoch: int
    resumed_from: int | None
    reason: str


class WorkerRegistered(TypedDict):
    """What the node offers: processors, checkpoint engines, the version of DMTCP (null: none). `age_s`: for how long
    the worker's process had been there."""

    age_s: NotRequired[float]
    node: str
    processors: int
    engines: list[str]
    dmtcp: Any


class WorkerLost(TypedDict):
    """The node, and why."""

    node: str
    reason: str


class WorkerLog(TypedDict):
    """What a worker has to say."""

    node: str
    level: str
    message: str


class OperationFailed(Step):
    """What `worker` was asked to do and could not."""

    operation: OperationKind
    seq: int
    epoch: int | None
    worker: str


class ClockSet(TypedDict):
    """Every time that is stored was shifted by so much."""

    by_s: float


class QueueChanged(TypedDict):
    """The settings that were changed at run time (null: back to the configuration's). `when`: in this window alone."""

    queue: str
    by: str
    changes: dict[str, Any]
    when: NotRequired[str]


class QueueWindow(TypedDict):
    """Windows that have `begun` or `ended`, and of the `settings` that windows set what is in force now.

    It is in force until `until_s` (null: for good).
    """

    queue: str
    begun: list[str]
    ended: list[str]
    settings: dict[str, Any]
    until_s: float | None


class QueuePaused(TypedDict):
    """`what` kept failing: submissions, or starts. The next is tried after `pause_s`. `whose`: of this
    `user/account/QOS` alone."""

    queue: str
    what: str
    whose: str
    reason: str
    pause_s: float


class QueueResumed(TypedDict):
    """What had failed so many times is tried again."""

    queue: str
    what: str
    whose: str
    reason: str
    failures: int


class TokenCreated(TypedDict):
    """A bearer token, by the beginning of its digest."""

    token: str
    user: str
    label: str
    scope: str
    expires_s: float


class TokenRevoked(TypedDict):
    """A bearer token, and the user that revoked it."""

    token: str
    user: str
    by: str


class Told(NamedTuple):
    """What a kind means, and the type of its data."""

    meaning: str
    data: Any


K = EventKind
CATALOGUE: dict[EventKind, Told] = {
    K.JOB_RECEIVED: Told("stored; nothing asked of the batch system yet", JobReceived),
    K.JOB_WAITING: Told("J0 is queued and no rank runs; after a setback: again", JobStep),
    K.JOB_RUNNING: Told("ranks, or the script, run", JobStep),
    K.JOB_ENDING: Told("the application is over; output is collected and subjobs are given back", JobStep),
    K.JOB_UNKNOWN: Told("passed through, and gone from the batch system: how it ended may still be learnt", JobStep),
    K.JOB_COMPLETED: Told("it ended well", JobStep),
    K.JOB_FAILED: Told("it ended, and not well", JobStep),
    K.JOB_TIMEOUT: Told("its time was up", JobStep),
    K.JOB_CANCELLED: Told("it was cancelled", JobStep),
    K.JOB_CANCEL_ASKED: Told("a user asked to cancel it", CancelAsked),
    K.JOB_HELD: Told("it is kept from starting", By),
    K.JOB_RELEASED: Told("it may go on after a hold", By),
    K.JOB_DEPENDENCY: Told("what it waited for (--dependency) has come, or never will", Dependency),
    K.JOB_NOT_MOVABLE: Told("no checkpoint is asked of it any more", NotMovable),
    K.JOB_MOVABLE: Told("what kept it from being moved is gone", Reason),
    K.JOB_AGAIN: Told("it ended and is run again, as the same job", JobAgain),
    K.JOB_GAP: Told("it is sent into a gap for which its request is too long", JobGap),
    K.JOB_LIMIT: Told("it is planned with less than its request, or was raised to it", JobLimit),
    K.JOB_ALONE: Told("it was found to have begun by itself, while no daemon was there", JobAlone),
    K.JOB_SIGNALLED: Told("it was sent what it asked for by --signal", JobSignalled),
    K.JOB_SIGNAL_ASKED: Told("a user had it sent a signal", JobSignalAsked),
    K.JOB_MAIL: Told("a mail was sent, or could not be", JobMail),
    K.JOB_FAULT: Told("a fault of EJB in a visit to this job; it was undone, and the job is visited again", Error),
    K.DECISION_NOTHING: Told("stay as it is; reported once for each verdict", Decided),
    K.DECISION_START: Told("start on slots that are free", Decided),
    K.DECISION_EXPAND: Told("spread over more slots", Decided),
    K.DECISION_MOVE_TO_PLACEHOLDER: Told("move to J0, which has started, with the work kept", Decided),
    K.DECISION_KEEP_SUBJOBS: Told("go on without J0", Decided),
    K.DECISION_START_ON_PLACEHOLDER: Told("begin anew on J0", Decided),
    K.DECISION_COMPLETE: Told("the application has ended: cancel what is left", Decided),
    K.DECISION_SHRINK: Told("leave subjobs before they end", Leaving),
    K.DECISION_SUSPEND: Told("checkpoint, leave all subjobs, and wait with the work kept", Leaving),
    K.DECISION_ANEW: Told("what cannot be moved begins anew where it can end", Leaving),
    K.DECISION_CHECKPOINT: Told("checkpoint the ranks where they are, and go on", CheckpointDue),
    K.DECISION_EVOLVE: Told("the widths of an evolving job, and when it has each", Evolving),
    K.SUBJOB_PLANNED: Told("it will be asked for", SubjobPlanned),
    K.SUBJOB_PENDING: Told("the batch system has it", SubjobStep),
    K.SUBJOB_RUNNING: Told("it has its nodes", SubjobStep),
    K.SUBJOB_SUSPENDED: Told("the batch system has stopped it for a while", SubjobStep),
    K.SUBJOB_COMPLETED: Told("it ended", SubjobStep),
    K.SUBJOB_FAILED: Told("it ended, and not well", SubjobStep),
    K.SUBJOB_TIMEOUT: Told("its walltime was over", SubjobStep),
    K.SUBJOB_CANCELLED: Told("it was cancelled", SubjobStep),
    K.SUBJOB_LOST: Told("its node failed, or the batch system does not know it any more", SubjobStep),
    K.SUBJOB_RELEASED: Told("it is given back", Reason),
    K.SUBJOB_MISSING: Told("the batch system does not list it", Nothing),
    K.SUBJOB_STRAY: Told("a second batch job bears its tag", Stray),
    K.SUBJOB_LOOKALIKE: Told("a batch job that is none of EJB's bears its tag", Lookalike),
    K.SUBJOB_RERUN: Told("the batch system runs it once more, having forgotten its end", Rerun),
    K.SUBJOB_WARNED: Told("the batch system warned that it will end it", SubjobWarned),
    K.SUBJOB_HELD: Told("J0, or what is passed through, is held at the batch system from outside", Reason),
    K.SUBJOB_LET_GO: Told("that hold is over", Reason),
    K.SUBJOB_STAYS: Told("J0 is kept from beginning until its turn (j0_in_turn)", Staying),
    K.SUBJOB_MAY_BEGIN: Told("J0 may begin again", Nothing),
    K.SUBJOB_ALTERED: Told("J0, or what is passed through, was altered from outside while it waits", SubjobAltered),
    K.SUBJOB_ADOPTED: Told("it stood by, and is the job's next run", Reason),
    K.SUBJOB_ASIDE: Told("the job goes on without J0, and keeps J0's number to its end", Reason),
    K.SUBJOB_ENDS_AS_JOB: Told("others wait for J0: it ends as the job did", EndsAsJob),
    K.PLACEHOLDER_PLANNED: Told("the batch system promised J0 a start", PlaceholderPlanned),
    K.PLACEHOLDER_AGAIN: Told("J0 is gone and is asked for again", PlaceholderAgain),
    K.INTENT_PENDING: Told("to be tried again: it did not happen", IntentStep),
    K.INTENT_EXECUTING: Told("being carried out", IntentStep),
    K.INTENT_UNKNOWN: Told("it may have happened: looked up by its tag", IntentStep),
    K.INTENT_DONE: Told("carried out", IntentStep),
    K.INTENT_FAILED: Told("refused", IntentStep),
    K.INTENT_DROPPED: Told("no longer wanted before it was tried", IntentStep),
    K.INTENT_POSTPONED: Told("the batch system cannot take it now", Reason),
    K.LEAD_APPOINTED: Told("a worker starts the script", LeadAppointed),
    K.SCRIPT_ENDED: Told("the script ended", ScriptEnded),
    K.LAUNCH_ASKED: Told("the script starts ranks", LaunchAsked),
    K.LAUNCH_ANEW: Told("a launch begins again", LaunchAnew),
    K.LAUNCH_REFUSED: Told("a launch that EJB does not carry out", LaunchRefused),
    K.LAUNCH_ENDED: Told("a launch ended", LaunchEnded),
    K.EPOCH_LAUNCHING: Told("ranks are placed, and started or restarted", EpochLaunching),
    K.EPOCH_RUNNING: Told("all ranks run", EpochStep),
    K.EPOCH_STOPPING: Told("a checkpoint was asked for", EpochStep),
    K.EPOCH_STOPPED: Told("every rank's checkpoint is whole, and no rank runs", EpochStep),
    K.EPOCH_ENDED: Told("every rank ended by itself", EpochStep),
    K.EPOCH_FAILED: Told("the placement is given up", EpochStep),
    K.EPOCH_RESIZED: Told("its ranks were folded or unfolded in place", EpochResized),
    K.EPOCH_RATE: Told("the ranks' progress is measured", EpochRate),
    K.EPOCH_LOST: Told("it had ended, and its end was lost with its subjob", EpochReason),
    K.RANK_FAILED: Told("ranks died", RankFailed),
    K.RANK_MEMORY: Told("a rank was killed for memory (OUT_OF_MEMORY)", RankMemory),
    K.RANK_STUCK: Told("a rank has stood still since its restart, and got on before", RankStuck),
    K.COORDINATOR_LOST: Told("DMTCP's coordinator ended by itself", EpochReason),
    K.CHECKPOINT_GIVEN_UP: Told("a checkpoint cannot be restarted", CheckpointGivenUp),
    K.MOVE_FAILED: Told("a checkpoint or a restart failed", EpochReason),
    K.OUTPUT_LOST: Told("the output could not be collected", Reason),
    K.WORKER_REGISTERED: Told("a worker came up", WorkerRegistered),
    K.WORKER_LOST: Told("a worker is gone, or was given up", WorkerLost),
    K.WORKER_LOG: Told("a worker says something", WorkerLog),
    K.OPERATION_FAILED: Told("a worker could not do what it was asked", OperationFailed),
    K.WORKFLOW_RECEIVED: Told("a plan of stages was stored", WorkflowReceived),
    K.WORKFLOW_RUNNING: Told("its user has it tried again", WorkflowStep),
    K.WORKFLOW_CANCEL_ASKED: Told("a user wants it ended", WorkflowBy),
    K.WORKFLOW_COMPLETED: Told("every stage has ended well, or had nothing to do", WorkflowStep),
    K.WORKFLOW_FAILED: Told("a stage has failed for good, and what may go on has ended", WorkflowStep),
    K.WORKFLOW_CANCELLED: Told("nothing of it runs any more, on a user's word", WorkflowStep),
    K.STAGE_WAITING: Told("it is to be tried again", StageStep),
    K.STAGE_SUBMITTING: Told("what it needs is there: a job is about to be made for it", StageStep),
    K.STAGE_SUBMITTED: Told("it is a job", StageStep),
    K.STAGE_COMPLETED: Told("its job has ended well", StageStep),
    K.STAGE_SKIPPED: Told("its outputs are newer than its inputs", StageStep),
    K.STAGE_FAILED: Told("it has failed for good", StageStep),
    K.STAGE_CANCELLED: Told("it was ended, or is not begun, on a user's word", StageStep),
    K.STAGE_DROPPED: Told("it is not begun, since another stage failed", StageStep),
    K.DAEMON_STARTED: Told("the daemon has started", Nothing),
    K.CLOCK_SET: Told("the machine's clock was set from outside", ClockSet),
    K.BATCH_SILENT: Told("the batch system does not answer", Error),
    K.BATCH_ANSWERS: Told("the batch system answers again", Nothing),
    K.BATCH_RESTS: Told("its scheduling is switched off: nothing starts", Nothing),
    K.BATCH_SCHEDULES: Told("its scheduling is switched on again", Nothing),
    K.QUEUE_CHANGED: Told("settings of a queue were changed", QueueChanged),
    K.QUEUE_PAUSED: Told("nothing is asked of a queue for a while", QueuePaused),
    K.QUEUE_RESUMED: Told("a paused queue is tried again", QueueResumed),
    K.QUEUE_WINDOW: Told("other settings of a queue are in force, by its windows of the week", QueueWindow),
    K.DRAIN_ASKED: Told("an operator wants nodes to be free by a time", DrainAsked),
    K.DRAIN_FREE: Told("no elastic job is left on the nodes that are drained", DrainFree),
    K.DRAIN_CANCELLED: Told("nodes are used again", DrainCancelled),
    K.TOKEN_CREATED: Told("a bearer token was made", TokenCreated),
    K.TOKEN_REVOKED: Told("a bearer token was revoked", TokenRevoked),
}


def tables() -> str:
    """The catalogue as Markdown: what each kind means, then what the data of each says."""
    lines = ["| kind | meaning | `data` |", "| --- | --- | --- |"]
    kinds: dict[Any, list[str]] = {}
    for kind, told in CATALOGUE.items():
        required = told.data.__required_keys__
        fields = (f"`{name}`" if name in required else f"[`{name}`]" for name in typing.get_type_hints(told.data))
        lines.append(f"| `{kind.value}` | {told.meaning} | {', '.join(fields)} |")
        kinds.setdefault(told.data, []).append(f"`{kind.value}`")
    lines.append("")
    for data, names in kinds.items():
        if data.__annotations__:
            text = f"- {', '.join(names)}: {' '.join(data.__doc__.split())}"
            lines += textwrap.wrap(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(tables(), end="")
