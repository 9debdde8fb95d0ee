"""The plan of one elastic job: what it holds, when it is to shrink, and when it will be done.

A plan is walked along the planned ends of the subjobs held (Liu & Weissman, SC'15, sections 2.2 and 3.2.2). Before the
end e of a subjob that ends earlier than the application there is a migration over [e - lambda, e] off that subjob and
off every other one that ends before e + lambda; nothing progresses meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ejbd.core.progress import ROUNDING_SLACK_S, migrate_interval, round_up, run_interval
from ejbd.core.shapes import UNLIMITED, Interval, Timeline


@dataclass(frozen=True, slots=True)
class BundlingParameters:
    """What a queue's policy may use.

    `omax`: the highest degree of over-subscription. `lambda_s`: what one migration stalls the application, in seconds.
    `delta`: the penalty factor of over-subscription (Eq. 2). `processor_quantum`: subjobs come in multiples of this.
    `walltime_quantum_s`: so do their walltimes. `max_walltime_s`: the longest walltime that the queue takes; a slot
    that lasts that long is as good as one without an end.
    """

    omax: int = 8
    lambda_s: float = 120.0
    delta: float = 1.0
    processor_quantum: int = 1
    walltime_quantum_s: float = 1.0
    max_walltime_s: float = UNLIMITED


@dataclass(frozen=True, slots=True)
class HeldSubjob:
    """A running subjob: its processors and its planned usable end (absolute seconds).

    An anchor holds the user's shell: it must stay until the application completes, so a plan that would have to drop
    it is no plan.
    """

    id: str
    processors: int
    end_s: float
    anchor: bool = False


@dataclass(frozen=True, slots=True)
class ElasticState:
    """One elastic job as a policy sees it, at the time that is passed beside it.

    `processes` is P, `requested_s` R, `work_s` W: full-speed seconds done by then. `subjobs` are those that hold ranks;
    none while the job waits (a job that lost its subjobs waits again and keeps its work). `stalled_until_s`: a
    migration is under way and is expected to last until then. `on_placeholder`: J0 runs the application and is in
    `subjobs`.
    """

    job: str
    processes: int
    requested_s: float
    work_s: float = 0.0
    subjobs: tuple[HeldSubjob, ...] = ()
    stalled_until_s: float | None = None
    on_placeholder: bool = False
    movable: bool = True

    @property
    def processors(self) -> int:
        """Processors held now."""
        return sum(subjob.processors for subjob in self.subjobs)

    @property
    def work_left_s(self) -> float:
        """Full-speed seconds still to do, by the requested walltime: R - W, never negative."""
        return max(0.0, self.requested_s - self.work_s)


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


PlannedEnd = tuple[float, int, bool]  # (usable end, processors, anchor)


def planned_ends(subjobs: Iterable[HeldSubjob]) -> list[PlannedEnd]:
    """The subjobs as `walk` wants them: in the order of their ends."""
    return sorted((subjob.end_s, subjob.processors, subjob.anchor) for subjob in subjobs)


def walk(
    processes: int,
    work_left_s: float,
    ends: Sequence[PlannedEnd],
    begin_s: float,
    params: BundlingParameters,
    levels: list[int] | None = None,
    intervals: list[Interval] | None = None,
) -> float:
    """When the application completes if it goes on at `begin_s` on these subjobs; not rounded, infinite if it cannot.

    It cannot where an anchor would have to be dropped, or where what stays would exceed O_max or is nothing. `levels`
    takes up the processors of each level of the plan, `intervals` its timeline, as far as the plan goes.
    """
    lambda_s = params.lambda_s
    delta = params.delta
    now = begin_s
    left = work_left_s
    processors = 0
    for _, held, _ in ends:
        processors += held
    if processors == 0:
        return math.inf
    dropped = 0
    while True:
        degree = -(-processes // processors)
        stretch = 1.0 if degree <= 1 else delta * degree
        done = now + left * stretch
        if levels is not None:
            levels.append(processors)
        end = ends[dropped][0]
        if done <= end + ROUNDING_SLACK_S:
            if intervals is not None and done > now:
                intervals.append(run_interval(now, done, processors))
            return done
        stall = end - lambda_s
        if stall > now:
            left -= (stall - now) / stretch
            if intervals is not None:
                intervals.append(run_interval(now, stall, processors))
            now = stall
        if end > now:
            if intervals is not None:
                intervals.append(migrate_interval(now, end, processors))
            now = end
        for _, freed, anchor in ends[dropped : _staying(processes, left, ends, dropped, now, processors, params)]:
            if anchor:
                return math.inf
            processors -= freed
            dropped += 1
        if processors <= 0 or processors * params.omax < processes:
            return math.inf


def _staying(
    processes: int,
    work_left_s: float,
    ends: Sequence[PlannedEnd],
    first: int,
    now: float,
    processors: int,
    params: BundlingParameters,
) -> int:
    """Index of the first subjob that stays in the migration that is over at `now`, the end of subjob `first` or later.

    What ends within lambda after that end would need a migration of its own that begins before this one is over, so it
    is left in the same move; unless the application completes before that subjob ends.
    """
    end = ends[first][0]
    staying = first
    while staying < len(ends) and ends[staying][0] <= end:
        processors -= ends[staying][1]
        staying += 1
    if staying == len(ends) or ends[staying][0] >= end + params.lambda_s or processors <= 0:
        return staying
    degree = -(-processes // processors)
    stretch = 1.0 if degree <= 1 else params.delta * degree
    if degree <= params.omax and now + work_left_s * stretch <= ends[staying][0] + ROUNDING_SLACK_S:
        return staying
    while staying < len(ends) and ends[staying][0] < end + params.lambda_s:
        staying += 1
    return staying


def expected_completion(state: ElasticState, now: float, params: BundlingParameters) -> tuple[float, Timeline]:
    """When the job will be done with what it holds, in whole seconds from now, and the timeline that leads there.

    Infinite where it cannot complete on these subjobs; the timeline then ends where it gets stuck. The timeline itself
    is not rounded. Over-subscription beyond O_max counts against a plan from its first shrink on only: what the job
    runs on now is a fact.
    """
    begin = now if state.stalled_until_s is None else max(now, state.stalled_until_s)
    intervals: list[Interval] = []
    if begin > now and state.subjobs:
        intervals.append(migrate_interval(now, begin, state.processors))
    done = walk(state.processes, state.work_left_s, planned_ends(state.subjobs), begin, params, None, intervals)
    return now + round_up(done - now), tuple(intervals)


def next_shrink(state: ElasticState, now: float, params: BundlingParameters) -> Shrink | None:
    """The next move off subjobs that end before the expected completion; None where nobody has to be left.

    `begin_s` may lie in the past: then there is no time to lose.
    """
    if not state.subjobs:
        return None
    held = sorted(state.subjobs, key=lambda subjob: (subjob.end_s, subjob.processors, subjob.anchor))
    processors = state.processors
    degree = -(-state.processes // processors)
    stretch = 1.0 if degree <= 1 else params.delta * degree
    begin = now if state.stalled_until_s is None else max(now, state.stalled_until_s)
    end = held[0].end_s
    if begin + state.work_left_s * stretch <= end + ROUNDING_SLACK_S:
        return None
    left = state.work_left_s - max(0.0, end - params.lambda_s - begin) / stretch
    staying = _staying(state.processes, left, planned_ends(held), 0, max(begin, end), processors, params)
    leaves, stays = held[:staying], held[staying:]
    kept = sum(subjob.processors for subjob in stays)
    anchor = next((subjob for subjob in leaves if subjob.anchor), None)
    who = ", ".join(subjob.id for subjob in leaves)
    if anchor is not None:
        reason = f"{anchor.id} holds the user's shell and ends before the application completes"
    elif not stays:
        reason = f"all subjobs ({who}) end before the application completes"
    elif kept * params.omax < state.processes:
        reason = f"without {who}, {kept} of the processors stay: too few for {state.processes} at O_max {params.omax}"
    else:
        return Shrink(
            end - params.lambda_s,
            end,
            tuple(subjob.id for subjob in leaves),
            tuple(subjob.id for subjob in stays),
            f"the application outlasts {who}; processors that stay: {kept}",
        )
    return Shrink(end - params.lambda_s, end, tuple(subjob.id for subjob in held), (), reason)
