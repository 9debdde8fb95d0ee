"""Allocations that follow others in the batch system itself, which starts them without a poll in between.

Where it can wait for a batch job's good end (`ClusterView.chains`), an allocation is handed to it as soon as those that
it needs are there, begun or not: a whole chain stands in the queue from the start, as `sbatch --dependency` has it. So
it gets its place there as early. It holds nothing until they have ended, and no word from here is needed then. A need
that is elastic is more than one batch job, and cannot be waited for so.

Its inputs are looked for by its script then; that it has nothing to do cannot be, since what it needs runs. So it is in
mode fast, too: what is queued ahead by the clock may begin too early, and holds its processors idle then.
"""

from __future__ import annotations

from collections.abc import Mapping

from ejbd.core.view import ClusterView
from ejbd.manager.facts.flows.standing import Standing
from ejbd.store.models import WorkflowStage
from ejbd.store.states import JobState, StageState

MOST_AHEAD = 64
"""Allocations of one workflow that wait in the batch system for others: a plan must not fill its user's limit there."""


def may_follow(found: Standing, view: ClusterView | None) -> dict[str, dict[str, str]]:
    """Allocations that can be asked for now to follow others: the batch jobs that each waits for, by what it needs."""
    if view is None or not view.chains or found.stuck:
        return {}
    chosen: dict[str, dict[str, str]] = {}
    left = MOST_AHEAD - sum(_waits(found, found.stages[name]) for name in found.after)
    for name, stage in found.stages.items():
        if len(chosen) >= left:
            break
        first = found.groups[name].stages[0]
        if stage.state != StageState.WAITING or stage.lingered or first.profile is not None:
            continue
        needs = [found.stages[need] for need in found.groups[name].needs]
        after = {need.name: _can_be_followed(found, need) for need in needs if not StageState(need.state).done}
        if after and all(after.values()):
            chosen[name] = after
    return chosen


def for_the_word(found: Standing, after: Mapping[str, str]) -> bool:
    """Whether what follows these needs has to wait for the word to begin, too."""
    jobs = (found.job(found.stages[name]) for name in after)
    return any(job is not None and job.elastic for job in jobs)


def _waits(found: Standing, stage: WorkflowStage) -> bool:
    job = found.job(stage)
    if job is None:
        return stage.state == StageState.SUBMITTING
    return stage.state == StageState.SUBMITTED and job.state in (JobState.RECEIVED, JobState.WAITING)


def _can_be_followed(found: Standing, need: WorkflowStage) -> str:
    """The number of its batch job; "" where nothing can follow it yet."""
    job = found.job(need)
    if need.state != StageState.SUBMITTED or job is None or JobState(job.state).terminal:
        return ""
    first = found.groups[need.name].stages[0]
    if job.elastic and (first.profile is not None or first.restartable):
        return ""  # it goes on without its J0
    return found.numbers.get(job.id, "")


def is_outdated(found: Standing, stage: WorkflowStage) -> bool:
    """Whether it follows a batch job that has not ended well, or is no longer the one that counts.

    Another one may have ended well before its end is seen here: what has not begun by then never will.
    """
    own = found.job(stage)
    begun = own is not None and own.start_s is not None
    for name, number in found.after.get(stage.name, {}).items():
        need = found.stages[name]
        job = found.job(need)
        if StageState(need.state).done:
            if not begun and job is not None and found.numbers.get(job.id, number) != number:
                return True
            continue
        if need.state != StageState.SUBMITTED or job is None or found.numbers.get(job.id) != number:
            return True
    return False


def outdated(found: Standing) -> list[WorkflowStage]:
    """Allocations that wait for what will never be."""
    return [
        stage
        for stage in found.stages.values()
        if stage.state == StageState.SUBMITTED
        and (job := found.job(stage)) is not None
        and not JobState(job.state).terminal
        and is_outdated(found, stage)
    ]
