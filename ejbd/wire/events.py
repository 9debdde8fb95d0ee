"""The catalogue of events: what each kind means, and what its `data` holds (:mod:`ejbd.wire.eventdata`).

`python -m ejbd.wire.events` prints it as the tables of docs/events.md. Every event that the manager writes in a test is
held to these types.
"""

from __future__ import annotations

import textwrap
import typing
from typing import Any, NamedTuple

from ejbd.wire.eventdata.common import By, Error, Nothing, Reason
from ejbd.wire.eventdata.flows import StageStep, WorkflowBy, WorkflowReceived, WorkflowStep
from ejbd.wire.eventdata.jobs import (
    CancelAsked,
    CheckpointDue,
    Decided,
    Dependency,
    Evolving,
    JobAgain,
    JobAlone,
    JobGap,
    JobLimit,
    JobMail,
    JobReceived,
    JobSignalAsked,
    JobSignalled,
    JobStep,
    Leaving,
    NotMovable,
)
from ejbd.wire.eventdata.ranks import (
    CheckpointGivenUp,
    EpochLaunching,
    EpochRate,
    EpochReason,
    EpochResized,
    EpochStep,
    LaunchAnew,
    LaunchAsked,
    LaunchEnded,
    LaunchRefused,
    LeadAppointed,
    OperationFailed,
    RankFailed,
    RankMemory,
    RankStuck,
    ScriptEnded,
    WorkerLog,
    WorkerLost,
    WorkerRegistered,
)
from ejbd.wire.eventdata.site import (
    ClockSet,
    DrainAsked,
    DrainCancelled,
    DrainFree,
    QueueChanged,
    QueuePaused,
    QueueResumed,
    QueueWindow,
    TokenCreated,
    TokenRevoked,
)
from ejbd.wire.eventdata.subjobs import (
    EndsAsJob,
    IntentStep,
    Lookalike,
    PlaceholderAgain,
    PlaceholderPlanned,
    Rerun,
    Staying,
    Stray,
    SubjobAltered,
    SubjobPlanned,
    SubjobStep,
    SubjobWarned,
)
from ejbd.wire.kinds import EventKind


class Told(NamedTuple):
    """What a kind means, and the type of its data."""

    meaning: str
    data: Any


K = EventKind
CATALOGUE: dict[EventKind, Told] = {
    K.JOB_RECEIVED: Told("stored; nothing asked of the batch system yet", JobReceived),
    K.JOB_ADOPTED: Told("found in the spool, where the database was restored from an older copy", Reason),
    K.JOB_WAITING: Told("J0 is queued and no rank runs; after a setback: again", JobStep),
    K.JOB_RUNNING: Told("ranks, or the script, run", JobStep),
    K.JOB_ENDING: Told("the application is over; output is collected and subjobs are given back", JobStep),
    K.JOB_UNKNOWN: Told("gone from the batch system: how it ended is not known, and may still be learnt", JobStep),
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
    K.JOB_ALONE: Told("it was found to have begun in its J0 by itself, as it was submitted", JobAlone),
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
