"""What becomes of an end: the one place that knows time-outs, setbacks, lost nodes, refusals, and how long to wait.

:func:`outcome` is a table: the facts of an end go in, what becomes of it comes out, and nothing is looked up or
changed. Whoever saw the end gathers the facts and carries the outcome out, by way of
:func:`ejbd.manager.ends.concluding.conclude`, where subscribers may give another answer
(:mod:`ejbd.manager.subscribers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from ejbd.config import Limits
from ejbd.core.view import BatchState
from ejbd.wire.kinds import SubjobRole
from ejbd.wire.states import JobState, SubjobState

PAUSES_S = (1.0, 5.0, 15.0, 60.0, 300.0)
"""The one ladder of pauses. Each further failure in a row climbs a rung; from the last one nobody climbs on."""
PLACEMENT_PAUSE_S = 30.0  # the longest before another placement: it holds its processors meanwhile
PLACEHOLDER_PAUSE_S = 5.0  # the first before a lost J0 is submitted again, which was once at no pause
QUEUE_PAUSE_S = 15.0  # the first of a queue that keeps failing
SUBMISSION_PAUSE_S = 60.0  # the longest without one trial submission: no job waits longer than that for its place

SUBJOB_ENDED_AS: dict[BatchState, SubjobState] = {
    BatchState.COMPLETED: SubjobState.COMPLETED,
    BatchState.FAILED: SubjobState.FAILED,
    BatchState.TIMEOUT: SubjobState.TIMEOUT,
    BatchState.CANCELLED: SubjobState.CANCELLED,
    BatchState.NODE_FAIL: SubjobState.LOST,
    BatchState.PREEMPTED: SubjobState.LOST,
}
"""What a batch job that has ended is to us."""


def pause_s(failures: int, *, free: int = 0, first_s: float = 0.0, most_s: float = PAUSES_S[-1]) -> float:
    """How long to wait after so many failures in a row (seconds).

    The first `free` of them cost nothing. Then comes a pause of `first_s` (where that is more than the lowest rung),
    and with each further failure the next rung of :data:`PAUSES_S` above it; never more than `most_s`, unless `first_s`
    itself is.
    """
    paying = failures - free
    if paying <= 0:
        return 0.0
    rungs = [max(first_s, PAUSES_S[0]), *(rung for rung in PAUSES_S[1:] if rung > first_s)]
    return min(rungs[min(paying, len(rungs)) - 1], max(most_s, first_s))


# -- what becomes of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Final:
    """The job is over."""

    state: JobState
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """What ended is tried again, not before `after_s` seconds from now.

    `setback`: it counts as one, and a job may have so many. `whole`: it is not only what ended, but the job that goes
    back into the batch system's queue, with its work as of the last checkpoint; `walltime_s`: the job's new walltime
    (None: as before).
    """

    after_s: float = 0.0
    reason: str = ""
    setback: bool = False
    whole: bool = False
    walltime_s: float | None = None


@dataclass(frozen=True, slots=True)
class GoesOn:
    """Nothing becomes of it: the job goes on with what it has."""


Outcome = Final | Again | GoesOn


# -- what has ended ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PassedThroughEnded:
    """The batch job of a passed-through job. `said`: how it ended, in words. Times are the batch system's (seconds).
    `subjob`: which of its batch jobs."""

    state: BatchState
    exit_code: int | None
    said: str
    start_s: float | None = None
    end_s: float | None = None
    subjob: str = ""


@dataclass(frozen=True, slots=True)
class ApplicationEnded:
    """The ranks of a command, or a script, by themselves. `said`: of a code that is not 0."""

    exit_code: int
    said: str


@dataclass(frozen=True, slots=True)
class LeadFailed:
    """A script did not begin: EJB's own files could not be written for it, which may pass. `setbacks`: before."""

    setbacks: int
    said: str


@dataclass(frozen=True, slots=True)
class OutputRefused:
    """A job's output could not be opened, so that it did not begin."""

    exit_code: int | None
    said: str


@dataclass(frozen=True, slots=True)
class TimeUsedUp:
    """A job's own walltime, in the batch job `what` ("it" or "its subjob").

    `began`: something of the job ran in it. `missed_s`: how much of it had passed before, with no daemon there. `away`:
    none was there when it started. `again`: what ran may be run again. `setbacks`: before.
    """

    what: str
    walltime_s: float
    began: bool = True
    missed_s: float = 0.0
    away: bool = False
    again: bool = False
    setbacks: int = 0


@dataclass(frozen=True, slots=True)
class PlanOutlived:
    """The time for which an application was placed, before it was done.

    `savable`: it can be checkpointed and wait again. `cut_short`: the batch system took some of that time away.
    `overruns`: how often it has outlived its plan before.
    """

    savable: bool
    cut_short: bool
    overruns: int
    walltime_s: float
    said: str


@dataclass(frozen=True, slots=True)
class ShellLost:
    """The subjob in which the shell of an ordinary script lived.

    `again`: the script can be begun again behind its launches. `counted`: a placement was lost with it, which counts as
    a setback itself. `setbacks`: before.
    """

    said: str
    again: bool = False
    counted: bool = False
    setbacks: int = 0


@dataclass(frozen=True, slots=True)
class PlacementFailed:
    """A placement of ranks: a restart that did not come up, a broken checkpoint, a lost worker. `setbacks`: before.

    `theirs`: the batch system has taken its processors away (a preemption). `way_back`: the checkpoint engine has
    failed, and the application is yet to be tried from an older checkpoint, or without that engine.
    """

    setbacks: int
    said: str
    theirs: bool = False
    way_back: bool = False


@dataclass(frozen=True, slots=True)
class PeersFailed:
    """Ranks that failed while others of their placement were lost with their worker."""

    setbacks: int
    said: str


@dataclass(frozen=True, slots=True)
class PlaceholderEnded:
    """J0, while the job was not on it, or before it ran.

    `released`: it was given back by us. `counted`: a placement on it has failed, which counted already. `waiting`: the
    job runs nowhere.
    """

    state: SubjobState
    released: bool
    counted: bool
    waiting: bool
    setbacks: int
    id: str


@dataclass(frozen=True, slots=True)
class NothingCameOfIt:
    """A subjob that did not start in time, whose workers did not come, or that ended before a placement ran on it.

    `started`: the batch system had started it, and nobody has taken it away.
    """

    failed_starts: int
    started: bool
    said: str


@dataclass(frozen=True, slots=True)
class SubmissionRefused:
    """A submission of a batch job that surely was not taken.

    `transient`: the very same may be taken later. `own_fault`: for what this job itself asks for. `attempts`: with this
    one. `failed_starts`: the job's subjobs that came to nothing before. `placed`: the job has other room. `of_account`:
    for a limit of its user's and account's.
    """

    role: SubjobRole
    transient: bool
    own_fault: bool
    attempts: int
    failed_starts: int
    placed: bool
    said: str
    of_account: bool = False


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A user's order to end the job. It stands: no subscriber is asked."""

    said: str


End = (
    PassedThroughEnded
    | ApplicationEnded
    | LeadFailed
    | OutputRefused
    | TimeUsedUp
    | PlanOutlived
    | ShellLost
    | PlacementFailed
    | PeersFailed
    | PlaceholderEnded
    | NothingCameOfIt
    | SubmissionRefused
    | CancelAsked
)

_PASSED_THROUGH: dict[SubjobState, JobState] = {
    SubjobState.COMPLETED: JobState.COMPLETED,
    SubjobState.TIMEOUT: JobState.TIMEOUT,
    SubjobState.CANCELLED: JobState.CANCELLED,
    SubjobState.FAILED: JobState.FAILED,
    SubjobState.LOST: JobState.FAILED,  # the batch system's own retry, where there is one, has had its turn
}
CANCELLED_THERE = "its batch job was cancelled at the batch system"
AGAIN_AND_AGAIN = "its batch job ended before it could run, again and again (the last time as {state})"


def outcome(end: End, limits: Limits) -> Outcome:
    """What becomes of `end`."""
    match end:
        case PassedThroughEnded(state, code, said):
            final = _PASSED_THROUGH[SUBJOB_ENDED_AS[state]]
            done = final is JobState.COMPLETED
            return Final(final, "" if done else said, 0 if done and code is None else code)
        case ApplicationEnded(code, said):
            return Final(JobState.FAILED, said, code) if code else Final(JobState.COMPLETED, "", 0)
        case LeadFailed(setbacks, said):
            if setbacks < limits.max_setbacks:
                return Again(reason=said, setback=True)
            return Final(JobState.FAILED, f"{said}; given up after {setbacks + 1} attempts")
        case OutputRefused(code, said):
            return Final(JobState.FAILED, said, code)
        case TimeUsedUp():
            return _of_time(end, limits)
        case PlanOutlived():
            # Once it goes back to waiting for J0 with its work kept; then it ends by time-out, as a rigid job would.
            if end.savable and (end.cut_short or not end.overruns):
                return Again(reason=end.said)
            return Final(JobState.TIMEOUT, f"{end.said} (it asked for {end.walltime_s:g} s at full width)")
        case ShellLost(said, again, counted, setbacks):
            if again and (counted or setbacks < limits.max_setbacks):
                return Again(reason=said, setback=not counted)
            return Final(JobState.FAILED, said)
        case PlacementFailed(said=said, theirs=True):
            return Again(reason=said)
        case PlacementFailed(setbacks, said, way_back=way_back):
            if way_back or setbacks < limits.max_setbacks:
                return Again(reason=said, setback=True)
            return Final(JobState.FAILED, f"{said}; given up after {setbacks + 1} failed placements")
        case PeersFailed(setbacks, said):  # the program is well; one that fails for ever has its own code in the end
            return Again(reason=said, setback=True) if setbacks < limits.max_setbacks else GoesOn()
        case PlaceholderEnded():
            return _of_placeholder(end, limits)
        case NothingCameOfIt(failed_starts=failed_starts):
            return Again(pause_s(failed_starts + 1, first_s=limits.start_grace_s))
        case SubmissionRefused():
            return _of_submission(end, limits)
        case CancelAsked(said):
            return Final(JobState.CANCELLED, said)
        case _ as never:
            assert_never(never)


def _of_time(end: TimeUsedUp, limits: Limits) -> Outcome:
    """Time that passed without a rank is not the job's."""
    said = f"{end.what} reached its time limit of {end.walltime_s:g} s"
    if not end.began:
        said += f", and no rank ran in it{' while no daemon was there' if end.away else ''}"
        if end.away:
            return Again(reason=said, whole=True)
        if end.setbacks < limits.max_setbacks:
            pause = pause_s(end.setbacks + 1, free=1, first_s=PLACEHOLDER_PAUSE_S)
            return Again(pause, said, setback=True, whole=True)
        return Final(JobState.FAILED, AGAIN_AND_AGAIN.format(state=SubjobState.TIMEOUT))
    if end.missed_s:
        said += f", the first {end.missed_s:.0f} s of which passed while no daemon was there"
        if end.again and end.setbacks < limits.max_setbacks:
            return Again(reason=said, setback=True, whole=True)
    return Final(JobState.TIMEOUT, said)


def _of_placeholder(end: PlaceholderEnded, limits: Limits) -> Outcome:
    if end.state is SubjobState.CANCELLED and not end.released:
        # By somebody to whom its number is the job's, as SLURM_JOB_ID has it: a user, or the script itself.
        return Final(JobState.CANCELLED, CANCELLED_THERE)
    setbacks = end.setbacks + (not end.counted)
    if setbacks <= limits.max_setbacks:
        pause = pause_s(max(1, setbacks), free=1, first_s=PLACEHOLDER_PAUSE_S)
        why = f"{end.id} is {'being given back' if end.released else end.state}"
        return Again(pause, why, setback=not end.counted)
    if not end.waiting:
        return GoesOn()
    return Final(JobState.FAILED, AGAIN_AND_AGAIN.format(state=end.state))


def _of_submission(end: SubmissionRefused, limits: Limits) -> Outcome:
    if end.transient:
        return Again(pause_s(end.attempts), end.said)
    if end.role is SubjobRole.SUBJOB:
        return Again(pause_s(end.failed_starts + 1, first_s=limits.start_grace_s), end.said)
    return GoesOn() if end.placed else Final(JobState.FAILED, end.said)


def placement_pause_s(setbacks: int) -> float:
    """How long before the next placement where the last one failed before it ran: its cause may pass (a full disk)."""
    return pause_s(setbacks, free=1, most_s=PLACEMENT_PAUSE_S)


def move_pause_s(move_s: float) -> float:
    """How long before another move where a checkpoint failed that stopped nobody; `move_s`: what a move costs."""
    return pause_s(1, first_s=max(10.0, move_s))
