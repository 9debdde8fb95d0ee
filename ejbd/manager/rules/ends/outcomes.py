"""What becomes of an end: the one place that knows time-outs, setbacks, lost nodes, refusals, and how long to wait.

:func:`outcome` is a table: the facts of an end go in, what becomes of it comes out, and nothing is looked up or
changed. The rule that saw the end gathers the facts and carries the outcome out, by way of
:func:`ejbd.manager.rules.ends.concluding.conclude`. There subscribers may give another answer
(:mod:`ejbd.manager.facts.subscribers`).
"""

from __future__ import annotations

from typing import assert_never

from ejbd.config import Limits
from ejbd.manager.effects.ends import (
    CANCELLED_THERE,
    SUBJOB_ENDED_AS,
    Again,
    ApplicationEnded,
    CancelAsked,
    End,
    Final,
    GoesOn,
    LeadFailed,
    NotGivenBack,
    NothingCameOfIt,
    Outcome,
    OutputRefused,
    PassedThroughEnded,
    PeersFailed,
    PlaceholderEnded,
    PlacementFailed,
    PlanOutlived,
    ShellLost,
    SubmissionRefused,
    TimeUsedUp,
)
from ejbd.manager.facts.pauses import PLACEHOLDER_PAUSE_S, pause_s
from ejbd.wire.kinds import SubjobRole
from ejbd.wire.states import JobState, SubjobState

# -- what becomes of it -----------------------------------------------------------------------------------------------


# -- what has ended ---------------------------------------------------------------------------------------------------


_PASSED_THROUGH: dict[SubjobState, JobState] = {
    SubjobState.COMPLETED: JobState.COMPLETED,
    SubjobState.TIMEOUT: JobState.TIMEOUT,
    SubjobState.CANCELLED: JobState.CANCELLED,
    SubjobState.FAILED: JobState.FAILED,
    SubjobState.LOST: JobState.FAILED,  # the batch system's own retry, where there is one, has had its turn
}
AGAIN_AND_AGAIN = "its batch job ended before it could run, again and again (the last time as {state})"


def outcome(end: End, limits: Limits) -> Outcome:
    """What becomes of `end`."""
    match end:
        case PassedThroughEnded(said=said, lost=True, setbacks=setbacks) if setbacks < limits.max_setbacks:
            return Again(reason=said, setback=True, whole=True)  # as sbatch has it, and J0 is never put back
        case PassedThroughEnded(state, code, said, exit_signal=signal):
            final = _PASSED_THROUGH[SUBJOB_ENDED_AS[state]]
            done = final is JobState.COMPLETED
            return Final(final, "" if done else said, 0 if done and code is None else code, signal)
        case ApplicationEnded(code, said, signal):
            return Final(JobState.FAILED, said, code, signal) if code else Final(JobState.COMPLETED, "", 0)
        case LeadFailed(setbacks, said):
            if setbacks < limits.max_setbacks:
                return Again(reason=said, setback=True)
            return Final(JobState.FAILED, f"{said}; given up after {setbacks + 1} attempts")
        case OutputRefused(code, said):
            return Final(JobState.FAILED, said, code, None if code is None else code - 128)
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
        case NotGivenBack(said):
            return Final(JobState.FAILED, said)
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
        # By a user, or the script itself: to them its number is the job's, as SLURM_JOB_ID has it.
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
    if end.needed:
        return Final(JobState.FAILED, f"a width that it has later is refused: {end.said}")
    if end.role is SubjobRole.SUBJOB:
        return Again(pause_s(end.failed_starts + 1, first_s=limits.start_grace_s), end.said)
    return GoesOn() if end.placed else Final(JobState.FAILED, end.said)
