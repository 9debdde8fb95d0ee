"""Doors from one room of rules to another: the rule behind a door runs in place, and its effects with it.

Which rule that is stands in :mod:`ejbd.manager.acts.doors`: no room of rules imports another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ejbd.core.decision import Decision
from ejbd.core.question import Question
from ejbd.core.view import KILL_WAIT_S
from ejbd.manager.effects.base import Effect
from ejbd.manager.effects.ends import End, Outcome
from ejbd.store.models import Array, Epoch, Job, Launch, Operation, Subjob, Worker

# -- rules/ends --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conclude(Effect):
    """Decide with all subscribers what becomes of `end`, and do it as far as it concerns the whole job."""

    end: End


@dataclass(frozen=True, slots=True)
class NoteDeaths(Effect):
    """Event `rank.failed`: the first rank that died, and sentences about all that had died by then."""

    epoch: Epoch
    bad: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class NoteMemory(Effect):
    """Event `rank.memory`: the kernel killed a rank for memory."""

    worker: Worker
    epoch: int
    rank: int


@dataclass(frozen=True, slots=True)
class NoteRefusal(Effect):
    """Event `launch.refused`: EJB did not carry out a launch that sbatch would have. `line` 0: it is not known."""

    name: str
    reason: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class FinishEnd(Effect):
    """Go on with the end of the job: its output to the last byte, then everything is given back."""


@dataclass(frozen=True, slots=True)
class StopRanks(Effect):
    """TERM, and KILL after `grace_s` seconds."""

    epoch: Epoch
    grace_s: float = KILL_WAIT_S


@dataclass(frozen=True, slots=True)
class Consult(Effect):
    """Ask the subscribers what becomes of an end, each in a savepoint of its own. Answers the outcome."""

    end: End
    outcome: Outcome


# -- rules/placements --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdoptAlone(Effect):
    """Take up a job that its J0 has begun by itself: what the batch system says of J0 is said of the job now."""

    j0: Subjob


@dataclass(frozen=True, slots=True)
class BeginOnJ0(Effect):
    """J0 runs, as is known before a poll: a waiting job begins there, and one that runs may go there."""

    j0: Subjob


@dataclass(frozen=True, slots=True)
class WorkerCame(Effect):
    """A worker of a subjob is there, for `age_s` seconds by now. Once all are, it runs. Answers whether their word is
    enough for that."""

    subjob: Subjob
    age_s: float


@dataclass(frozen=True, slots=True)
class AddLaunch(Effect):
    """The application is to run: the whole of a command job, or one launch line of a script."""

    ordinal: int
    size: int
    file: str
    together: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class Advance(Effect):
    """Do everything that can be done now for one elastic job."""


@dataclass(frozen=True, slots=True)
class BeginCheckpoint(Effect):
    """Ask every worker that has ranks to checkpoint and stop them."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class RankStandsStill(Effect):
    """A rank of the live placement `number` hangs since its restart: back to the checkpoint before, once a job."""

    number: int
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StopLaunch(Effect):
    """End the launch that is under way with `code`, whatever its ranks are doing."""

    launch: Launch
    code: int
    why: str


@dataclass(frozen=True, slots=True)
class DropCheckpoints(Effect):
    """The job has come to its end, and well."""


@dataclass(frozen=True, slots=True)
class HandOver(Effect):
    """Have the lead collect the last placement's output to its last byte, end the script (TERM, and KILL after
    `grace_s` seconds), and stop collecting. `exit`: what it is told at once that is to leave when that is done."""

    lead: Worker
    say: Sequence[str] = ()
    grace_s: float = KILL_WAIT_S
    exit: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GiveBack(Effect):
    """Checkpoint and wait again, since a batch job (`to`) that waits fits into what this one holds. Or leave a part of
    it in place."""

    question: Question
    decision: Decision
    to: str


@dataclass(frozen=True, slots=True)
class LeavesInTime(Effect):
    """Move off the subjobs that end next. Where no rank would stay, keep the work and wait again. False: not yet."""


@dataclass(frozen=True, slots=True)
class LeavesBeyond(Effect):
    """Give back what the job holds beyond the width that it asked for, where another job waits. False: it does not."""


@dataclass(frozen=True, slots=True)
class Overruns(Effect):
    """The application is slower than what it asked for allows: its subjobs end before it does, against the plan."""


@dataclass(frozen=True, slots=True)
class ObstaclePassed(Effect):
    """What was seen in the ranks of `epoch` is gone. Where that comes and goes they are moved after a pause."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ObstacleSeen(Effect):
    """A worker saw in the ranks of `epoch` what cannot be moved. They run on where they are."""

    epoch: Epoch
    why: str


@dataclass(frozen=True, slots=True)
class CameToNothing(Effect):
    """A subjob is over, or given up, before a placement ran on it: no other before a pause that grows."""

    subjob: Subjob
    why: str
    started: bool = True
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndByTime(Effect):
    """The job has used up its time, as it would have by itself; what passed of it without the job is not the job's."""

    home: Subjob


@dataclass(frozen=True, slots=True)
class EndIfTimeIsUp(Effect):
    """End the job where one of `subjobs`, in which something ended at `at_s` (now), has used up the job's own time."""

    subjobs: list[str]
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class EnsurePlaceholder(Effect):
    """J0: the job in its original shape, so that it never fares worse than it would have without EJB."""


@dataclass(frozen=True, slots=True)
class GiveUp(Effect):
    """Workers in a subjob are told to end what runs there and to leave. A placement on it is over."""

    subjob: Subjob
    why: str


@dataclass(frozen=True, slots=True)
class GivesBackLate(Effect):
    """Give back a J0 of which too much passed while no daemon was there, if what begins there can begin only once."""

    j0: Subjob


@dataclass(frozen=True, slots=True)
class LeaveSubjob(Effect):
    """A subjob has ended: no ranks of the job are wanted there. `said`: the batch system's word, where it says more."""

    subjob: Subjob
    said: str = ""


@dataclass(frozen=True, slots=True)
class LostWorker(Effect):
    """A worker is gone, and its ranks with it. `left_s`: when it left by its own word (absolute seconds); None: it did
    not say."""

    worker: Worker
    why: str
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class StartOver(Effect):
    """Give up what the present launch has done; the next placement begins it anew."""

    epoch: Epoch
    why: str


# -- rules/signals -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignalsInTime(Effect):
    """Send the signal that the job asked for, once for each batch job that ends with the job's time."""


@dataclass(frozen=True, slots=True)
class ToRanks(Effect):
    """Send a signal to all ranks, where they run; whether they do."""

    number: int


@dataclass(frozen=True, slots=True)
class ToScript(Effect):
    """Send a signal to the shell of a script, where it runs; whether it does."""

    number: int


@dataclass(frozen=True, slots=True)
class CheckpointInTime(Effect):
    """Checkpoint the ranks where they are, if that is due and worth it."""


@dataclass(frozen=True, slots=True)
class LeaveEnding(Effect):
    """Checkpoint, and go on with what is left, or wait. False: it cannot be moved, and runs on until the end comes."""

    gone: Collection[Subjob]
    why: str


@dataclass(frozen=True, slots=True)
class LeavesWhatEnds(Effect):
    """Leave in time what was warned of, and a J0 that is to end earlier. Whether there was anything to leave."""


@dataclass(frozen=True, slots=True)
class TakeWarning(Effect):
    """A worker has had the batch system's warning."""

    worker: Worker


# -- rules/learning ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GapBegun(Effect):
    """A batch job of a passed-through job runs. Its own was faster than the word that it stays."""

    job: Job
    subjob: Subjob


@dataclass(frozen=True, slots=True)
class NoteCheckpoint(Effect):
    """An epoch was checkpointed and stopped by `operations`, one a worker, all of which succeeded."""

    epoch: Epoch
    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class NoteRestart(Effect):
    """All ranks of an epoch run that was restarted from a checkpoint."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Stalled(Effect):
    """The ranks of an epoch stood still for a while and go on: what they tell from now on is counted anew."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class TakeSample(Effect):
    """What a worker sees of the ranks of an epoch. Only a live placement still cares."""

    worker: Worker
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NoteGivenBack(Effect):
    """A subjob that ranks were on was given back and has ended; `end_s`: when, by the batch system."""

    subjob: Subjob
    end_s: float | None


@dataclass(frozen=True, slots=True)
class NoteStartUp(Effect):
    """All ranks of an epoch run: its new subjobs took so long until their workers answered.

    Where nothing was restarted, the ranks took so long from then on.
    """

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class SavesInTime(Effect):
    """Save what runs on a J0 of a learned walltime that is nearly over, and wait again for another J0."""


@dataclass(frozen=True, slots=True)
class AdoptStandby(Effect):
    """What stands by with this walltime becomes the job's next run, and may begin. None: nothing does."""

    walltime_s: float
    why: str


@dataclass(frozen=True, slots=True)
class LetStandbyGo(Effect):
    """Nothing has to stand by any more."""

    why: str


@dataclass(frozen=True, slots=True)
class PlanStandby(Effect):
    """A run of a passed-through job has begun: have the next one stand by, where a time-out would take it."""


# -- rules/evolving ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evolve(Effect):
    """One look at a job of widths that are known ahead: ask for those that come, and leave what is over."""


@dataclass(frozen=True, slots=True)
class ReplaceTail(Effect):
    """Replace what comes of an evolving job, or only say what that would be. Answers its course."""

    tail: str
    by: str
    dry_run: bool
    key: str = ""


# -- rules/linked ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DropElements(Effect):
    """Cancel elements that are no jobs yet (None: all of them); how many there were."""

    array: Array
    wanted: str | None


# -- rules/queues ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueSucceeded(Effect):
    """A submission was taken, or ranks run where they were to start: whatever was wrong with the queue is over."""

    job: Job
    what: str  # a Failing (ejbd.manager.facts.queues)


@dataclass(frozen=True, slots=True)
class TryStart(Effect):
    """A queue's pause is over, and subjobs of `job` are its trial. Until when the others wait (absolute seconds)."""

    job: Job


# -- rules/requests ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeLeftBehind(Effect):
    """Take what a subjob's workers could not tell before it ended: a daemon that was away must not take it for lost."""

    subjob: Subjob


@dataclass(frozen=True, slots=True)
class CancelJob(Effect):
    """End a job for good, whatever it is doing."""

    job_id: str
    by: str
