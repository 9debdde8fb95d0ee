"""What can end, with the facts of it, and what can become of an end.

Values: the table from the one to the other is :mod:`ejbd.manager.rules.ends.outcomes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ejbd.core.view import BatchState
from ejbd.wire.kinds import SubjobRole
from ejbd.wire.states import JobState, SubjobState

SUBJOB_ENDED_AS: dict[BatchState, SubjobState] = {
    BatchState.COMPLETED: SubjobState.COMPLETED,
    BatchState.FAILED: SubjobState.FAILED,
    BatchState.TIMEOUT: SubjobState.TIMEOUT,
    BatchState.CANCELLED: SubjobState.CANCELLED,
    BatchState.NODE_FAIL: SubjobState.LOST,
    BatchState.PREEMPTED: SubjobState.LOST,
}
"""What a batch job that has ended is to us."""


@dataclass(frozen=True, slots=True)
class Final:
    """The job is over."""

    state: JobState
    reason: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """What ended is tried again, not before `after_s` seconds from now.

    `setback`: it counts as one, and a job may have so many. `whole`: not only what ended goes back into the batch
    system's queue, but the job, with its work as of the last checkpoint. `walltime_s`, `queue`: the job's new walltime,
    and the queue into which it goes as a whole (None: as before).
    """

    after_s: float = 0.0
    reason: str = ""
    setback: bool = False
    whole: bool = False
    walltime_s: float | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class GoesOn:
    """Nothing becomes of it: the job goes on with what it has."""


Outcome = Final | Again | GoesOn


@dataclass(frozen=True, slots=True)
class PassedThroughEnded:
    """The batch job of a passed-through job. `said`: how it ended, in words. Times are the batch system's (seconds).
    `subjob`: which of its batch jobs. `lost`: a J0 that had begun the job by itself was taken away, and its script may
    begin again; `setbacks`: before."""

    state: BatchState
    exit_code: int | None
    said: str
    start_s: float | None = None
    end_s: float | None = None
    subjob: str = ""
    lost: bool = False
    setbacks: int = 0
    exit_signal: int | None = None


@dataclass(frozen=True, slots=True)
class ApplicationEnded:
    """The ranks of a command, or a script, by themselves. `said`: of a code that is not 0. `exit_signal`: that ended
    the script."""

    exit_code: int
    said: str
    exit_signal: int | None = None


@dataclass(frozen=True, slots=True)
class LeadFailed:
    """A script did not begin: EJB's own files could not be written for it, which may pass. `setbacks`: before."""

    setbacks: int
    said: str


@dataclass(frozen=True, slots=True)
class OutputRefused:
    """A job's output could not be opened, so that it did not begin. `exit_code`: of the signal that Slurm ends it with
    (None: it could not begin for another reason)."""

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
    """A subjob that did not start in time, got no workers, or ended before a placement ran on it.

    `started`: the batch system had started it, and it was not taken away.
    """

    failed_starts: int
    started: bool
    said: str


@dataclass(frozen=True, slots=True)
class SubmissionRefused:
    """A submission of a batch job that surely was not taken.

    `transient`: the very same may be taken later. `own_fault`: for what this job itself asks for. `attempts`: with this
    one. `failed_starts`: the job's subjobs that came to nothing before. `placed`: the job has other room. `of_account`:
    for a limit of its user's and account's. `needed`: the job does not begin without it.
    """

    role: SubjobRole
    transient: bool
    own_fault: bool
    attempts: int
    failed_starts: int
    placed: bool
    said: str
    of_account: bool = False
    needed: bool = False


@dataclass(frozen=True, slots=True)
class NotGivenBack:
    """An evolving job has not left a width when its step, and the grace behind it, were over."""

    said: str


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
    | NotGivenBack
    | CancelAsked
)


CANCELLED_THERE = "its batch job was cancelled at the batch system"
