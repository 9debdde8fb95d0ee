"""The plan of one elastic job: what it holds, when it is to shrink, and when it will be done.

A plan is walked along the planned ends of the subjobs held (Liu & Weissman, SC'15, sections 2.2 and 3.2.2). Before the
end e of a subjob that ends earlier than the application there is a move over [e - lambda, e] off that subjob and
off every other one that ends before e + lambda; nothing progresses meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ejbd.core.bundling.parameters import BundlingParameters, Rules
from ejbd.core.bundling.rungs import last_rung, rung_on, stretch_at, stretch_on
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.progress import ROUNDING_SLACK_S, round_up
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline


@dataclass(frozen=True, slots=True)
class Shrink:
    """The next move off subjobs that end: it must begin at `begin_s` to be over by `end_s`.

    `leaves` are left in that move; `stays` carry the application on. `stays` is empty where nothing could: there
    `reason` says why, and the application has to be checkpointed by `end_s` and go back to waiting.
    """

    begin_s: float
    end_s: float
    leaves: tuple[str, ...]
    stays: tuple[str, ...]
    reason: str


@kernel
def walk_plan(
    processes: int,
    work_left_s: float,
    ends: Floats,
    held: Ints,
    anchors: Ints,
    count: int,
    begin_s: float,
    rules: Rules,
    levels: Ints,
    log: Floats,
) -> tuple[float, int, int, float, float]:
    """When the application completes if it goes on at `begin_s` on these subjobs; not rounded, infinite if it cannot.

    The first `count` entries of `ends`, `held` (processors) and `anchors` are the subjobs in the order of their ends;
    under a node limit the one that has the ranks, and anchors.
    It cannot complete where an anchor would have to be dropped, or where what stays would exceed O_max or is nothing.
    `levels`, unless empty, takes up the processors of each level of the plan, `log` its timeline as (is a move,
    start, end, processors), as far as the plan goes; how many there are of each comes second and third. The fourth
    figure is the work that is left where the plan gets stuck, in full-speed seconds; 0 where it completes. The last
    are the processor-seconds that are held from `begin_s` on.
    """
    now = begin_s
    left = work_left_s
    told = 0
    logged = 0
    processors = carrying(held, count, rules)
    if processors == 0:
        return math.inf, 0, 0, work_left_s, 0.0
    dropped = 0
    spent = 0.0
    while True:
        stretched = stretch_on(processes, processors, rules)
        done = now + left * stretched
        if len(levels) > 0:
            levels[told] = processors
            told += 1
        end = ends[dropped]
        if done <= end + ROUNDING_SLACK_S:
            if len(log) > 0 and done > now:
                logged = _note(log, logged, 0.0, now, done, processors)
            return done, told, logged, 0.0, spent + processors * max(0.0, done - now)
        spent += processors * max(0.0, end - now)
        stall = end - rules.lambda_s
        if stall > now:
            left -= (stall - now) / stretched
            if len(log) > 0:
                logged = _note(log, logged, 0.0, now, stall, processors)
            now = stall
        if end > now:
            if len(log) > 0:
                logged = _note(log, logged, 1.0, now, end, processors)
            now = end
        if rules.node_limit >= 0:  # the ranks are on one subjob: nothing else that is held carries them
            return math.inf, told, logged, left, spent
        staying = first_staying(processes, left, ends, held, dropped, count, now, processors, rules)
        while dropped < staying:
            if anchors[dropped] != 0:
                return math.inf, told, logged, left, spent
            processors -= held[dropped]
            dropped += 1
        if processors <= 0 or rung_on(processes, processors, rules) > last_rung(processes, rules):
            return math.inf, told, logged, left, spent


@kernel
def carrying(held: Ints, count: int, rules: Rules) -> int:
    """Processors that ranks can use: of all subjobs together, under a node limit of the widest."""
    processors = 0
    if rules.node_limit < 0:
        for index in range(count):
            processors += held[index]
    else:
        for index in range(count):
            processors = max(processors, held[index])
    return processors


@kernel
def _note(log: Floats, logged: int, moves: float, start: float, end: float, processors: int) -> int:
    log[4 * logged] = moves
    log[4 * logged + 1] = start
    log[4 * logged + 2] = end
    log[4 * logged + 3] = processors
    return logged + 1


@kernel
def first_staying(
    processes: int,
    work_left_s: float,
    ends: Floats,
    held: Ints,
    first: int,
    count: int,
    now: float,
    processors: int,
    rules: Rules,
) -> int:
    """Index of the first subjob that stays in the move that is over at `now`, the end of subjob `first` or later.

    What ends within lambda after that end would need a move of its own that begins before this one is over, so it
    is left in the same move; unless the application completes before that subjob ends.
    """
    end = ends[first]
    staying = first
    while staying < count and ends[staying] <= end:
        processors -= held[staying]
        staying += 1
    if staying == count or ends[staying] >= end + rules.lambda_s or processors <= 0:
        return staying
    lower = rung_on(processes, processors, rules)
    takes_s = work_left_s * stretch_at(processes, lower, rules)
    if lower <= last_rung(processes, rules) and now + takes_s <= ends[staying] + ROUNDING_SLACK_S:
        return staying
    while staying < count and ends[staying] < end + rules.lambda_s:
        staying += 1
    return staying


NONE_LEAVES, SOME_STAY, ANCHOR_LEAVES, NONE_STAYS, TOO_FEW_STAY = 0, 1, 2, 3, 4


@kernel
def shrink_plan(
    processes: int,
    work_left_s: float,
    ends: Floats,
    held: Ints,
    anchors: Ints,
    count: int,
    begin_s: float,
    rules: Rules,
) -> tuple[int, int]:
    """The next move off subjobs that end first: (one of the codes above, how many of the subjobs leave).

    It has to be over at the end of the first subjob. Subjobs come as for :func:`walk_plan`.
    """
    processors = carrying(held, count, rules)
    stretched = stretch_on(processes, processors, rules)
    end = ends[0]
    if begin_s + work_left_s * stretched <= end + ROUNDING_SLACK_S:
        return NONE_LEAVES, 0
    if rules.node_limit >= 0:
        return (ANCHOR_LEAVES if anchors[0] != 0 else NONE_STAYS), count
    left = work_left_s - max(0.0, end - rules.lambda_s - begin_s) / stretched
    staying = first_staying(processes, left, ends, held, 0, count, max(begin_s, end), processors, rules)
    kept = 0
    for index in range(staying, count):
        kept += held[index]
    for index in range(staying):
        if anchors[index] != 0:
            return ANCHOR_LEAVES, staying
    if staying == count:
        return NONE_STAYS, staying
    if kept <= 0 or rung_on(processes, kept, rules) > last_rung(processes, rules):
        return TOO_FEW_STAY, staying
    return SOME_STAY, staying


def by_end(subjobs: Iterable[HeldSubjob]) -> list[HeldSubjob]:
    """The subjobs in the order in which a plan walks them."""
    return sorted(subjobs, key=lambda subjob: (subjob.end_s, subjob.processors, subjob.anchor))


def carriers(state: ElasticState, rules: Rules) -> tuple[HeldSubjob, ...]:
    """What a plan goes by: all subjobs; under a node limit the widest, which has the ranks, and anchors."""
    if rules.node_limit < 0 or len(state.subjobs) < 2:
        return state.subjobs
    widest = max(state.subjobs, key=lambda subjob: (subjob.processors, subjob.end_s))
    return tuple(subjob for subjob in state.subjobs if subjob is widest or subjob.anchor)


def rules_for(state: ElasticState, params: BundlingParameters) -> Rules:
    """The rules for one job: its own node limit; what cannot go back to waiting with its work kept is not suspended."""
    suspend = params.suspend and state.suspendable
    limit = params.node_limit if state.node_limit is None else state.node_limit
    if suspend is params.suspend and limit == params.node_limit:
        return params.rules
    return replace(params, suspend=suspend, node_limit=limit).rules


class HeldVectors(NamedTuple):
    """Subjobs as the kernels take them: ends, processors and anchor flags, in the order of their ends."""

    ends: list[float]
    processors: list[int]
    anchors: list[int]


def vectors(subjobs: Iterable[HeldSubjob]) -> HeldVectors:
    """The subjobs of a state for the kernels."""
    held = by_end(subjobs)
    return HeldVectors([s.end_s for s in held], [s.processors for s in held], [int(s.anchor) for s in held])


def expected_completion(state: ElasticState, now: float, params: BundlingParameters) -> tuple[float, PlannedTimeline]:
    """When the job will be done with what it holds, in whole seconds from now, and the timeline that leads there.

    Infinite where it cannot complete on these subjobs; the timeline then leads to where it gets stuck, and what can be
    moved is suspended there. The timeline itself is not rounded. Over-subscription beyond O_max counts against a plan
    from its first shrink on only: what the job runs on now is a fact.
    """
    begin = now if state.stalled_until_s is None else max(now, state.stalled_until_s)
    rules = rules_for(state, params)
    held = vectors(carriers(state, rules))
    count = len(held.ends)
    log = [0.0] * (8 * count + 8)
    done, _, logged, _, _ = walk_plan(state.processes, state.work_left_s, *held, count, begin, rules, [], log)
    if not count:
        return done, ()
    on_j0 = state.on_placeholder
    intervals: list[PlannedInterval] = []
    if begin > now:
        intervals.append(
            PlannedInterval(PlannedKind.MOVE, now, begin, carrying(held.processors, count, rules), 0, on_j0)
        )
    for at in range(0, 4 * logged, 4):
        moves, start, end, processors = log[at : at + 4]
        kind = PlannedKind.MOVE if moves else PlannedKind.RUN
        over = 0 if moves else params.ranks_each(state.processes, int(processors))
        intervals.append(PlannedInterval(kind, start, end, int(processors), over, on_j0))
    if math.isinf(done) and state.movable and intervals:
        intervals.append(PlannedInterval(PlannedKind.SUSPENDED, intervals[-1].end_s, math.inf, 0, 0))
    return now + round_up(done - now), tuple(intervals)


def next_shrink(state: ElasticState, now: float, params: BundlingParameters) -> Shrink | None:
    """The next move off subjobs that end before the expected completion; None where none has to be left.

    `begin_s` may lie in the past: then there is no time to lose.
    """
    if not state.subjobs:
        return None
    rules = rules_for(state, params)
    held = by_end(carriers(state, rules))
    begin = now if state.stalled_until_s is None else max(now, state.stalled_until_s)
    end = held[0].end_s
    code, staying = shrink_plan(state.processes, state.work_left_s, *vectors(held), len(held), begin, rules)
    if code == NONE_LEAVES:
        return None
    leaves, stays = held[:staying], held[staying:]
    kept = sum(subjob.processors for subjob in stays)
    left = ", ".join(subjob.id for subjob in leaves)
    if code == ANCHOR_LEAVES:
        anchor = next(subjob for subjob in leaves if subjob.anchor)
        reason = f"{anchor.id} holds the user's shell and ends before the application completes"
    elif code == NONE_STAYS:
        reason = f"all subjobs ({left}) end before the application completes"
    elif code == TOO_FEW_STAY:
        reason = f"without {left}, {kept} of the processors stay: too few for {state.processes} at O_max {params.omax}"
    else:
        return Shrink(
            end - params.lambda_s,
            end,
            tuple(subjob.id for subjob in leaves),
            tuple(subjob.id for subjob in stays),
            f"the application outlasts {left}; processors that stay: {kept}",
        )
    return Shrink(end - params.lambda_s, end, tuple(subjob.id for subjob in held), (), reason)
