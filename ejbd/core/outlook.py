"""What is to come of a job: what its policy plans with what it holds, and what becomes of it once J0 starts."""

from __future__ import annotations

import math
from dataclasses import replace

from ejbd.core.policy import Policy, Situation
from ejbd.core.question import ask
from ejbd.core.state import ElasticState
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline, until


def outlook(
    state: ElasticState,
    planned: PlannedTimeline,
    now_s: float,
    placeholder_s: float | None,
    policy: Policy,
) -> PlannedTimeline:
    """`planned`, and from the time at which J0 is expected to start on what the policy would answer then.

    `planned` begins at `now_s` and is empty where the job waits. `placeholder_s`: when the batch system means to start
    J0, in absolute seconds (None: it does not say); a time that has passed is now. Behind the last interval nothing is
    known, which is the end of the job unless that interval has no end.
    """
    timeline = planned or (PlannedInterval(PlannedKind.WAIT, now_s, math.inf, 0, 0),)
    if placeholder_s is None or state.on_placeholder:
        return timeline
    start_s = max(now_s, placeholder_s)
    meets = next((interval for interval in timeline if interval.end_s > start_s), None)
    if meets is None:
        return timeline  # done before
    if meets.kind is PlannedKind.MOVE:
        start_s = meets.end_s  # a move that is under way is brought to its end first
    before = until(timeline, start_s)
    runs = (interval for interval in before if interval.kind is PlannedKind.RUN)
    made_s = sum(run.length_s * policy.parameters.rate_on(state.processes, run.processors) for run in runs)
    waits = meets.kind in (PlannedKind.WAIT, PlannedKind.SUSPENDED)
    held = () if waits else tuple(subjob for subjob in state.subjobs if subjob.end_s > start_s)
    then = replace(state, work_s=state.work_s + made_s, subjobs=held, stalled_until_s=None)
    return before + ask(policy, Situation.PLACEHOLDER_STARTED, then, start_s).timeline
