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
    """What comes of `planned`, and from the time at which J0 is expected to start on what the policy would answer then.

    `planned` begins at `now_s` and is empty where the job waits. `placeholder_s`: when the batch system means to start
    J0, in absolute seconds (None: it does not say); a time that has passed is now. Behind the last interval nothing is
    known, which is the end of the job unless that interval has no end.
    """
    timeline = _carried_out(state, planned)
    if not timeline:
        kept = state.movable and state.suspendable
        left = PlannedKind.SUSPENDED if kept else PlannedKind.CUT_OFF  # what it holds ends now
        timeline = (PlannedInterval(left if state.subjobs else PlannedKind.WAIT, now_s, math.inf, 0, 0),)
    if placeholder_s is None or state.on_placeholder:
        return timeline
    start_s = max(now_s, placeholder_s)
    meets = next((interval for interval in timeline if interval.end_s > start_s), None)
    if meets is None or meets.kind is PlannedKind.CUT_OFF:
        return timeline  # over before
    if meets.kind is PlannedKind.MOVE:
        start_s = meets.end_s  # a move that is under way is brought to its end first
    before = until(timeline, start_s)
    runs = (interval for interval in before if interval.kind is PlannedKind.RUN)
    made_s = sum(run.length_s * policy.parameters.rate_on(state.processes, run.processors) for run in runs)
    waits = meets.kind in (PlannedKind.WAIT, PlannedKind.SUSPENDED)
    held = () if waits else tuple(subjob for subjob in state.subjobs if subjob.end_s > start_s)
    then = replace(state, work_s=state.work_s + made_s, subjobs=held, stalled_until_s=None)
    return before + _carried_out(then, ask(policy, Situation.PLACEHOLDER_STARTED, then, start_s).timeline)


def _carried_out(state: ElasticState, planned: PlannedTimeline) -> PlannedTimeline:
    """What of a policy's plan can be done: a job that cannot be moved, or would lose its shell, ends before that.

    What is under way, and the first stretch that ranks run, need no move.
    """
    stalled_s = state.stalled_until_s
    moving = int(bool(planned) and stalled_s is not None and stalled_s > planned[0].start_s)
    stays = len(planned)
    if not state.movable:
        stays = moving + sum(interval.kind is PlannedKind.RUN for interval in planned[moving : moving + 1])
    elif not state.suspendable and planned and planned[-1].kind is PlannedKind.SUSPENDED:
        stays -= 2 if len(planned) > moving + 1 and planned[-2].kind is PlannedKind.MOVE else 1
    if stays >= len(planned):
        return planned
    return *planned[:stays], PlannedInterval(PlannedKind.CUT_OFF, planned[stays].start_s, math.inf, 0, 0)
