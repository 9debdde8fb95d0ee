"""Growth beyond the width that a job asked for: what of it is given back as soon as another job waits.

It is room that no job wanted. A job grows into it only while none waits, and gives it back before anything else, as
soon as one does. It keeps it only where it would not be done in time without it. J0 ends when the job does, so that
there the moves to what is added and back are made up for first.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ejbd.core.bundling.candidates import Scratch, scratch_for
from ejbd.core.bundling.guard import WORTH_MOVES
from ejbd.core.bundling.parameters import BundlingParameters, Rules
from ejbd.core.bundling.plan import by_end, carrying, expected_completion, rules_for, vectors, walk_plan
from ejbd.core.decision import Decision, DecisionKind, ReasonCode
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.shapes import UNLIMITED
from ejbd.core.state import ElasticState


@kernel
def to_give_back(
    processes: int,
    work_left_s: float,
    ends: Floats,
    held: Ints,
    anchors: Ints,
    count: int,
    now: float,
    rules: Rules,
    scratch: Scratch,
) -> int:
    """How many of the subjobs, those that end first, a job does without that holds more than it asked for.

    It keeps as many processors as it asked for, and has to be done with them; 0 where it would not, or where it is done
    anyway within what giving back is worth. Subjobs come as for :func:`ejbd.core.bundling.plan.walk_plan`.
    """
    total = carrying(held, count, rules)
    if rules.node_limit >= 0 or total <= processes:
        return 0
    leaves = 0
    while leaves < count - 1 and anchors[leaves] == 0 and total - held[leaves] >= processes:
        total -= held[leaves]
        leaves += 1
    if leaves == 0:
        return 0
    done, _, _, _, _ = walk_plan(
        processes, work_left_s, ends, held, anchors, count, now, rules, scratch.levels, scratch.log
    )
    if done - now <= WORTH_MOVES * rules.lambda_s:
        return 0
    for index in range(leaves, count):
        scratch.ends[index - leaves] = ends[index]
        scratch.held[index - leaves] = held[index]
        scratch.anchors[index - leaves] = anchors[index]
    done, _, _, _, _ = walk_plan(
        processes,
        work_left_s,
        scratch.ends,
        scratch.held,
        scratch.anchors,
        count - leaves,
        now + rules.lambda_s,
        rules,
        scratch.levels,
        scratch.log,
    )
    return leaves if done < math.inf else 0


def plan_beyond(state: ElasticState, now: float, params: BundlingParameters) -> Decision:
    """LEAVE what a job holds beyond the width that it asked for, since another job waits; NOTHING where it keeps it."""
    stalled = state.stalled_until_s is not None and state.stalled_until_s > now
    if stalled or not state.movable or state.processors <= state.processes:
        code = ReasonCode.MOVING if stalled else ReasonCode.GIVES_NOTHING
        return Decision(DecisionKind.NOTHING, state.job, now, "it holds nothing that it could leave now", code=code)
    rules = rules_for(state, params)
    held = by_end(state.subjobs)
    leaves = to_give_back(
        state.processes, state.work_left_s, *vectors(held), len(held), now, rules, scratch_for(len(held))
    )
    more = state.processors - state.processes
    if leaves == 0:
        why = f"what it holds beyond the {state.processes} that it asked for is kept: it would not be done in time, or "
        why += "is done soon"
        return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.GIVES_NOTHING)
    stays = replace(state, subjobs=tuple(held[leaves:]), stalled_until_s=now + params.lambda_s)
    done, timeline = expected_completion(stays, now, params)
    gone = sum(subjob.processors for subjob in held[:leaves])
    what = "the processor" if gone == 1 else f"the {gone} processors"
    return Decision(
        DecisionKind.LEAVE,
        state.job,
        now,
        f"another job waits: {what} beyond the {state.processes} that were asked for are given back"
        + (f", of {more} that there are" if more != gone else ""),
        (),
        done if done < UNLIMITED else None,
        cancel=tuple(subjob.id for subjob in held[:leaves]),
        timeline=timeline,
        begin_s=now,
        end_s=now + params.lambda_s,
        code=ReasonCode.ONE_FITS,
    )
