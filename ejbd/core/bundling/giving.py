"""Giving back what is held over-subscribed, asked and explained; the rule is that of `guard` beside this module."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace

from ejbd.core.bundling.guard import give_back, may_fold, may_give_back
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import expected_completion, rules_for
from ejbd.core.decision import Decision, DecisionKind, ReasonCode
from ejbd.core.lending import Borrower, Lending, Waiting
from ejbd.core.shapes import UNLIMITED
from ejbd.core.state import ElasticState
from ejbd.core.timeline import PlannedInterval, PlannedKind


def borrowed(state: ElasticState, now: float, params: BundlingParameters) -> Borrower | None:
    """What the job may be made to give back, in its own places; None: it may keep what it holds.

    What cannot go back to waiting with its work kept does not give back, and neither does what is being moved or runs
    on J0.
    """
    stalled = state.stalled_until_s is not None and state.stalled_until_s > now
    if state.on_placeholder or stalled or not (state.subjobs and state.movable and state.suspendable):
        return None
    rules = rules_for(state, params)
    done_s = expected_completion(state, now, params)[0] - now
    room_s = max(subjob.end_s for subjob in state.subjobs) - now
    if not may_give_back(state.processes, state.processors, done_s, room_s, rules):
        return None
    return Borrower(state.job, state.processors, room_s, params.lambda_s)


def folded(state: ElasticState, lent: Collection[str], now: float, params: BundlingParameters) -> Borrower | None:
    """What the job may be made to give back by leaving subjobs in place (`lent`); None: it leaves none.

    Its ranks go on where they are, on what is left. So it need not be movable.
    """
    stalled = state.stalled_until_s is not None and state.stalled_until_s > now
    leaves = [subjob for subjob in state.subjobs if subjob.id in lent and not subjob.anchor]
    if state.on_placeholder or stalled or not leaves:
        return None
    rules = rules_for(state, params)
    gain = sum(subjob.processors for subjob in leaves)
    done_s = expected_completion(state, now, params)[0] - now
    room_s = max(subjob.end_s for subjob in state.subjobs) - now
    if not may_fold(state.processes, state.processors, gain, done_s, room_s, rules.omax, rules):
        return None
    return Borrower(state.job, gain, room_s, 0.0, tuple(subjob.id for subjob in leaves))


def givers(lending: Lending) -> dict[str, Waiting]:
    """The jobs that give back what they hold, each with the waiting one that it is for."""
    waiting, borrowers = lending.waiting, lending.borrowers
    gives = [-1] * len(borrowers)
    give_back(
        # A job that did not start on room that it was given keeps its place in the queue, and is given no more.
        [sys.maxsize if one.in_vain else one.processors for one in waiting],
        [one.walltime_s for one in waiting],
        [int(one.served) for one in waiting],
        len(waiting),
        lending.available,
        lending.coming,
        [one.held for one in borrowers],
        [one.room_s for one in borrowers],
        [one.move_s for one in borrowers],
        len(borrowers),
        gives,
    )
    return {one.job: waiting[at] for one, at in zip(borrowers, gives, strict=True) if at >= 0}


def plan_giving_back(state: ElasticState, lending: Lending, now: float, params: BundlingParameters) -> Decision:
    """SUSPEND where a job that waits fits into what this one holds over-subscribed, else NOTHING.

    LEAVE where it is said to give a part of it in place.
    """
    mine = next((one for one in lending.borrowers if one.job == state.job), None)
    leaves = mine.leaves if mine is not None else ()
    may = folded(state, leaves, now, params) if leaves else borrowed(state, now, params)
    if mine is None or may is None:
        why = "nothing that it holds would be worth giving back"
        return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.GIVES_NOTHING)
    found = givers(lending)
    to = found.get(state.job)
    if to is None:
        why = "no waiting job would fit into what it holds"
        return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.NONE_FITS)
    givers_to = sum(one is to for one in found.values())
    if leaves:
        return _fold(state, mine, _why(state, to, mine, lending, givers_to, params), now, params)
    begin, end = now, now + params.lambda_s
    leaves = tuple(subjob.id for subjob in state.subjobs)
    moves = PlannedInterval(PlannedKind.MOVE, begin, end, state.processors, 0)
    waits = PlannedInterval(PlannedKind.SUSPENDED, end, UNLIMITED, 0, 0)
    return Decision(
        DecisionKind.SUSPEND,
        state.job,
        now,
        _why(state, to, mine, lending, givers_to, params),
        cancel=leaves,
        timeline=(moves, waits) if end > begin else (waits,),
        begin_s=begin,
        end_s=end,
        code=ReasonCode.ONE_FITS,
    )


def _fold(state: ElasticState, mine: Borrower, why: str, now: float, params: BundlingParameters) -> Decision:
    """LEAVE subjobs in place."""
    stays = replace(state, subjobs=tuple(subjob for subjob in state.subjobs if subjob.id not in mine.leaves))
    done, timeline = expected_completion(stays, now, params)
    return Decision(
        DecisionKind.LEAVE,
        state.job,
        now,
        f"{why}; its ranks leave {'it' if mine.held == 1 else 'them'} in place",
        (),
        done if done < UNLIMITED else None,
        cancel=mine.leaves,
        timeline=timeline,
        begin_s=now,
        end_s=now,
        code=ReasonCode.ONE_FITS,
    )


def _why(
    state: ElasticState, to: Waiting, mine: Borrower, lending: Lending, givers: int, params: BundlingParameters
) -> str:
    """`job 123 of alice, which waits first, fits into the 8 processors that this job holds over-subscribed`."""
    job = f"job {to.id} of {to.user}"
    if to.of:
        job = f"J0 of {'this job' if to.of == state.job else f'job {to.of}'} ({to.id})"
    place = lending.waiting.index(to) + 1
    waits = "which waits first" if place == 1 else f"number {place} of those that wait"
    processors = "processor" if mine.held == 1 else f"{mine.held} processors"
    narrow = "over-subscribed" if params.rungs is None else "below its width"
    how = narrow if state.processors < state.processes else "for a while only"
    into = f"the {processors} that this job holds {how}"
    if lending.available > 0:
        into += f" and the {lending.available} that are free"
    if givers > 1:
        into += f", with what {givers - 1} more give back"
    return f"{job}, {waits}, fits into {into}"
