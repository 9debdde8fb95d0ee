"""Elastic job bundling: when to start, grow and move an elastic job (Liu & Weissman, SC'15, section 3).

The paper's handlers, one function each, as pure functions of a job's state and of the slots that can be used now. The
rules themselves are the kernels of `candidates` and `plan` beside this module; here they are asked and explained. Two
of the paper's formulas are misprints and are read so: P_1 = ceil(P_t/S.P_max) is a degree of over-subscription, not a
count of processors (the subjob gets the fewest processors that reach that degree), and the third condition of WAIT case
3 asks for a lower degree on both slots together than on the type-I slot alone, not for a higher one.

Completion times are rounded up to whole seconds from now, walltimes to whole walltime quanta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ejbd.core.bundling.candidates import (
    ADD_TWO,
    DEAR,
    FEASIBLE,
    FULL_WIDTH,
    GROWS,
    LATE,
    MORE_WORK,
    MOVE,
    MOVING,
    NEARLY_DONE,
    NO_EARLIER,
    NO_SLOT,
    NO_SUBJOB,
    NOT_MOVABLE,
    ON_PLACE_HOLDER,
    START_OVER,
    SUSPENDED_RUN,
    TOO_LATE,
    TOO_SHORT,
    WHOLE_MOVE,
    WHOLE_RUN,
    Options,
    added,
    going_on,
    placeholder_choice,
    room_for,
    running_options,
    scratch_for,
    wait_options,
)
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import carriers, carrying, expected_completion, next_shrink, rules_for, vectors
from ejbd.core.bundling.rungs import last_rung, width_of
from ejbd.core.decision import Candidate, Decision, DecisionKind, ReasonCode, SubjobRequest, no_room
from ejbd.core.delta import delta_at
from ejbd.core.progress import round_up
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline

_TOLD = 4  # candidates spelled out in a reason; the decision carries them all


def plan_wait(state: ElasticState, slots: Sequence[BackfillSlot], now: float, params: BundlingParameters) -> Decision:
    """Whether a waiting job can start on what is free now (section 3.2.1, cases 1 to 3).

    A job that went back to waiting has kept its work: it asks for what is left, and restarting costs a lambda. A
    subjob, or the longer of two, must carry the job to its end. Of equal completions the lowest case wins. Case 3 is
    tried on every two slots, which under EASY are the paper's one pair. With `suspend` a slot that is too short is used
    until it ends, if nothing better can be had. A job that cannot be moved has cases 1 and 2 only.
    """
    seen = tuple(slots)
    if not seen:
        return no_room(state.job, now)
    rules = rules_for(state, params)
    steps = len(seen) if params.rungs is not None else min(len(seen), params.omax)
    options = room_for(steps * (steps + 1) // 2 + 2)
    processors, durations = _slot_vectors(seen)
    count, chosen = wait_options(
        state.processes,
        state.work_s,
        state.work_left_s,
        state.weighed_left_s,
        processors,
        durations,
        len(seen),
        rules,
        options,
    )
    if count == 0:
        most = seen[-1].processors
        needed = width_of(state.processes, last_rung(state.processes, rules), rules)
        needs = f"O_max {params.omax} needs {needed}"
        if params.rungs is not None:
            needs = f"the narrowest width is {needed}"
        reason = f"{_processors(most)} free, and {needs} for {state.processes} processes"
        if rules.node_limit >= 0:
            reason = f"{_on_one_node(state)}: {rules.node_limit} can be had on one, and {needs}"
        return Decision(DecisionKind.NOTHING, state.job, now, reason, slots=seen, code=ReasonCode.TOO_NARROW)

    if not state.movable:
        count, chosen = _whole_runs(options, count)
    where = " on one node" if rules.node_limit >= 0 else ""
    candidates = [
        replace(
            _wait_candidate(options, at, seen, now, params, where), price=_price_of_start(options, at, state, params)
        )
        for at in range(count)
    ]
    best = candidates[chosen] if chosen >= 0 else None
    if seen[options.slot[0]].duration_s < params.max_walltime_s:
        candidates.insert(0, _no_case_1(seen, params))
    if best is None:
        reason = "no slot carries the job to its end: " + _spelled_out(candidates)
        weighed = tuple(candidates)
        none = ReasonCode.NONE_LASTS
        return Decision(DecisionKind.NOTHING, state.job, now, reason, (), None, weighed, seen, code=none)
    reason = f"start by {best.name}: {best.why}" + _rejected(candidates, best)
    wide = sum(request.processors for request in best.requests)
    resumes = params.start_up_s + (params.move_to_s(state.processes, wide) if state.work_s > 0.0 else 0.0)
    ends = [request.length_s for request in best.requests]
    timeline = _timeline_with(state, best.requests, ends, now, resumes, params)
    return Decision(
        DecisionKind.START,
        state.job,
        now,
        reason,
        best.requests,
        best.completion_s,
        tuple(candidates),
        seen,
        timeline=timeline,
        code=ReasonCode.EARLIEST,
    )


def _timeline_with(
    state: ElasticState,
    requests: Sequence[SubjobRequest],
    lengths_s: Sequence[float],
    now: float,
    stall_s: float,
    params: BundlingParameters,
) -> PlannedTimeline:
    """What is planned once subjobs of these lengths have been added, and ranks stand still for `stall_s`."""
    more = tuple(
        HeldSubjob(f"+{number}", request.processors, now + length_s)
        for number, (request, length_s) in enumerate(zip(requests, lengths_s, strict=True), 1)
    )
    then = replace(state, subjobs=state.subjobs + more, stalled_until_s=now + stall_s)
    return expected_completion(then, now, params)[1]


def _timeline_of_growth(
    state: ElasticState,
    stays: ElasticState,
    requests: Sequence[SubjobRequest],
    lengths_s: Sequence[float],
    now: float,
    params: BundlingParameters,
) -> PlannedTimeline:
    """The same for a job that runs; `stays`: with what it keeps. Its ranks go on while the new subjobs start up."""
    rules = rules_for(state, params)
    held = vectors(carriers(state, rules))
    have = carrying(held.processors, len(held.ends), rules)
    begin = now if state.stalled_until_s is None else max(now, state.stalled_until_s)
    wide = have if state is stays else 0
    move_s = params.move_to_s(state.processes, wide + sum(request.processors for request in requests))
    begins = now + params.start_up_s + move_s
    done = going_on(state.processes, have, held.ends, begin, now, begins, rules)
    if done <= 0.0:
        return _timeline_with(stays, requests, lengths_s, now, begins - now, params)
    launched = now + params.start_up_s
    then = replace(stays, work_s=state.work_s + done)
    left_s = [length_s - params.start_up_s for length_s in lengths_s]
    runs = PlannedInterval(PlannedKind.RUN, now, launched, have, params.ranks_each(state.processes, have))
    return runs, *_timeline_with(then, requests, left_s, launched, move_s, params)


def _whole_runs(options: Options, count: int) -> tuple[int, int]:
    """How many of the options stay on one subjob to the end (they come first), and the best of these or -1."""
    whole = sum(1 for at in range(count) if options.kind[at] == WHOLE_RUN)
    fit = [at for at in range(whole) if options.verdict[at] == FEASIBLE]
    return whole, min(fit, key=lambda at: options.seconds[at], default=-1)


def _slot_vectors(slots: tuple[BackfillSlot, ...]) -> tuple[list[int], list[float]]:
    return [slot.processors for slot in slots], [slot.duration_s for slot in slots]


def _wait_candidate(
    options: Options, at: int, slots: tuple[BackfillSlot, ...], now: float, params: BundlingParameters, where: str
) -> Candidate:
    """One option of a waiting job in words."""
    kind, slot, processors = options.kind[at], slots[options.slot[at]], options.processors[at]
    request = SubjobRequest(processors, options.length[at], options.slot[at])
    held = f"{_processors(processors)}{where} ({_rung(options.degree[at], params)})"
    if kind == SUSPENDED_RUN:
        why = f"{held} for {slot.duration_s:.0f} s, then back to waiting with the work kept"
        return Candidate("suspend", True, None, (request,), why)
    feasible = options.verdict[at] == FEASIBLE
    completion = now + options.seconds[at] if feasible else None
    guarded = {
        LATE: f", and could not be given back in time: a move takes {params.lambda_s + params.start_up_s:.0f} s",
        DEAR: ", and even borrowed, room would cost the others too much at this degree"
        + (f": Delta is {delta_at(params.delta, options.degree[at]):g}" if params.rungs is None else ""),
    }.get(options.verdict[at])
    if kind == WHOLE_RUN:
        name = "case 1" if slot.duration_s >= params.max_walltime_s else "case 2"
        why = f"{held} take {options.seconds[at]:.0f} s"
        if guarded:
            why += guarded
        elif not feasible:
            why += f" and may be used for {slot.duration_s:.0f} s"
        return Candidate(name, feasible, completion, (request,) if feasible else (), why)
    short = options.length_2[at]
    if options.verdict[at] == TOO_SHORT:
        why = f"the wider slot ends after {short:.0f} s, before it has paid for a move of {params.lambda_s:.0f} s"
        return Candidate("case 3", False, None, (), why)
    more = options.processors_2[at]
    why = (
        f"{_processors(processors + more)} ({_rung(options.degree_2[at], params)}) for {short:.0f} s, then "
        f"{processors} ({_rung(options.degree[at], params)}), take {options.seconds[at]:.0f} s"
    )
    if guarded:
        return Candidate("case 3", False, None, (), why + guarded)
    if not feasible:
        return Candidate("case 3", False, None, (), f"{why}, and the longer slot ends after {slot.duration_s:.0f} s")
    return Candidate("case 3", True, completion, (request, SubjobRequest(more, short, options.slot_2[at])), why)


def _rung(rung: int, params: BundlingParameters) -> str:
    """How the job is placed there."""
    if params.rungs is None:
        return f"degree {rung}"
    return "at full width" if rung == 1 else "reshaped"


def _price_of_start(options: Options, at: int, state: ElasticState, params: BundlingParameters) -> float | None:
    """Processor-seconds for each second of the job's own that is done then."""
    done_s = state.work_left_s
    if options.kind[at] == SUSPENDED_RUN:
        resumes = params.lambda_s if state.work_s > 0.0 else 0.0
        running_s = options.length[at] - params.lambda_s - params.start_up_s - resumes
        done_s = running_s * params.rate_on(state.processes, options.processors[at]) / params.pace
    elif options.verdict[at] != FEASIBLE:
        return None
    return round(options.spent[at] / done_s, 2) if done_s > 0.0 else None


def _no_case_1(slots: tuple[BackfillSlot, ...], params: BundlingParameters) -> Candidate:
    if slots[0].duration_s < params.max_walltime_s:
        return Candidate("case 1", False, None, (), "no processor is free without an end")
    too_few = f"O_max {params.omax}" if params.rungs is None else "any width"
    why = f"{_processors(slots[0].processors)} without an end: too few for {too_few}"
    return Candidate("case 1", False, None, (), why)


def plan_running(
    state: ElasticState, slots: Sequence[BackfillSlot], now: float, params: BundlingParameters
) -> Decision:
    """Whether a running job gains by further subjobs (section 3.2.2, cases 1 to 3): only if it completes earlier.

    Case 1 is a subjob that lasts to the completion, case 2 one that has to be left before, case 3 one of each. Every
    level of the plan, now and after each planned shrink, is considered for the fewest processors that reach the lowest
    degree there. Of equal completions the fewest processors win. With `suspend`, a job that cannot complete on what it
    holds, and would not with more, takes what lets it make the most work until it is suspended, if that is worth a
    move.
    """
    seen = tuple(slots)
    present, planned = expected_completion(state, now, params)
    known = present if present < UNLIMITED else None
    rules = rules_for(state, params)
    held = vectors(carriers(state, rules))
    count = len(held.ends)
    options = room_for(len(seen) * (count + 1) * (count + 2))
    processors, durations = _slot_vectors(seen)
    stalled = now if state.stalled_until_s is None else state.stalled_until_s
    barred, listed, chosen = running_options(
        state.processes,
        state.work_left_s,
        state.weighed_left_s,
        stalled,
        state.movable,
        state.on_placeholder,
        state.alone,
        *held,
        count,
        processors,
        durations,
        len(seen),
        now,
        rules,
        scratch_for(count),
        options,
    )
    if barred != GROWS:
        code, skip = _no_expansion(barred, state, present, now, params)
        return Decision(DecisionKind.NOTHING, state.job, now, skip, (), known, (), seen, timeline=planned, code=code)

    order = sorted(range(listed), key=lambda at: added(options, at))
    candidates = [_expanded(options, at, seen, now, present, state, params) for at in order]
    if chosen < 0:
        reason = f"stay on {_processors(carrying(held.processors, count, rules))}, {_until(known, now)}"
        none = "what is free does not lower the degree"
        if rules.node_limit >= 0:
            none = f"{_on_one_node(state)}, where {rules.node_limit} can be had at most: no lower degree"
        reason += ": " + (_spelled_out(candidates) if candidates else none)
        weighed, code = tuple(candidates), ReasonCode.NO_GAIN
        return Decision(
            DecisionKind.NOTHING, state.job, now, reason, (), known, weighed, seen, timeline=planned, code=code
        )
    best = candidates[order.index(chosen)]
    reason = f"grow by {best.name}: {best.why}; as it is, {_until(known, now)}" + _rejected(candidates, best)
    ends = [seen[request.slot_index].duration_s for request in best.requests]
    stays = state
    if options.kind[chosen] == WHOLE_MOVE:
        stays = replace(state, subjobs=tuple(replace(held, processors=0) for held in state.subjobs if held.anchor))
    timeline = _timeline_of_growth(state, stays, best.requests, ends, now, params)
    return Decision(
        DecisionKind.EXPAND,
        state.job,
        now,
        reason,
        best.requests,
        best.completion_s,
        tuple(candidates),
        seen,
        timeline=timeline,
        code=ReasonCode.EARLIEST,
    )


def _no_expansion(
    barred: int, state: ElasticState, present: float, now: float, params: BundlingParameters
) -> tuple[ReasonCode, str]:
    """Why growing is out of the question."""
    move_s = params.lambda_s + params.start_up_s
    least = max(move_s, params.min_left_s)
    within = "a move's" if least == move_s else "the"
    nearly = f"done in {present - now:.0f} s, within {within} {least:.0f} s"
    if state.by_earlier_runs:
        nearly = f"{_by_earlier_runs(state)}, done within {within} {least:.0f} s"
    return {
        NO_SUBJOB: (ReasonCode.NO_SUBJOB, "the job holds no subjob"),
        NOT_MOVABLE: (ReasonCode.NOT_MOVABLE, "the application cannot be moved"),
        ON_PLACE_HOLDER: (ReasonCode.ON_PLACEHOLDER, "the place holder J0 runs the application at full width"),
        MOVING: (ReasonCode.MOVING, "a move is under way"),
        FULL_WIDTH: (ReasonCode.FULL_WIDTH, f"every one of the {state.processes} processes has a processor"),
        NEARLY_DONE: (ReasonCode.NEARLY_DONE, nearly),
        NO_SLOT: (ReasonCode.NO_ROOM, "no processor can be used now"),
    }[barred]


def _by_earlier_runs(state: ElasticState) -> str:
    return f"with {state.weighed_left_s:.0f} s left, as earlier runs have it"


def _expanded(
    options: Options,
    at: int,
    slots: tuple[BackfillSlot, ...],
    now: float,
    present: float,
    state: ElasticState,
    params: BundlingParameters,
) -> Candidate:
    """One expansion in words."""
    slot, processors = options.slot[at], options.processors[at]
    requests = [SubjobRequest(processors, options.length[at], slot)]
    why = f"{_processors(processors)} more"
    if options.kind[at] == WHOLE_MOVE:
        name = "whole move"
        why = f"all processes to {_processors(processors)} on one node ({_rung(options.degree_2[at], params)})"
        if slots[slot].duration_s < UNLIMITED:
            why += f", which may be used for {slots[slot].duration_s:.0f} s"
    elif options.kind[at] == ADD_TWO:
        name = "case 3"
        slot, processors = options.slot_2[at], options.processors_2[at]
        requests.append(SubjobRequest(processors, options.length_2[at], slot))
        why += f", and {processors} for {slots[slot].duration_s:.0f} s"
    else:
        ends_before = options.verdict[at] in (TOO_LATE, MORE_WORK) or options.degree[at] == 1
        name = "case 2" if ends_before and slots[slot].duration_s < UNLIMITED else "case 1"
        if name == "case 2":
            why += f" for {slots[slot].duration_s:.0f} s"
    if options.verdict[at] == MORE_WORK:
        return Candidate(name, True, None, tuple(requests), f"{why}, more work until the job is suspended")
    if options.verdict[at] == TOO_LATE:
        if name == "whole move":
            why += ": it does not last, or the subjob with the user's shell does not"
        else:
            why += ": what stays after a shrink exceeds O_max or is nothing"
        return Candidate(name, False, None, (), why)
    completion = now + options.seconds[at]
    why += f", done in {options.seconds[at]:.0f} s"
    if options.verdict[at] == NO_EARLIER:
        no = "no earlier" if completion >= present else f"but {_by_earlier_runs(state)}, no earlier"
        return Candidate(name, False, completion, (), f"{why}, {no}")
    price = round(options.spent[at] / (present - completion), 2) if completion < present < UNLIMITED else None
    return Candidate(name, True, completion, tuple(requests), why, price)


def plan_placeholder_start(state: ElasticState, now: float, params: BundlingParameters) -> Decision:
    """What to do once J0 has started (section 3.3): move to it (i), go on without it (ii), start over on it (iii).

    On a tie going on wins, then moving. A job that holds no subjob runs on J0, from its last checkpoint where that
    pays. `cancel` names the subjobs to be released once J0 runs the application; an anchor is never among them.
    """
    limit = rules_for(state, params).node_limit
    split = 0 <= limit < state.processes
    movable = state.movable and not split
    stuck = "the application cannot be moved"
    if split and state.movable:
        stuck = f"its {state.processes} processes have to stay on one node, and J0 has {limit} on one"
    full = now + round_up(state.requested_s)
    move_s = params.move_to_s(state.processes, state.processes)
    moved = now + round_up(move_s + state.work_left_s)
    release = tuple(subjob.id for subjob in state.subjobs if not subjob.anchor)
    move = Candidate(
        "(i) move to J0",
        movable and (state.work_s > 0.0 or bool(state.subjobs)),
        moved if movable else None,
        (),
        f"a move of {move_s:.0f} s and {state.work_left_s:.0f} s at full width: {moved - now:.0f} s"
        if movable
        else stuck,
    )
    restart = Candidate("(iii) start on J0", True, full, (), f"the whole run at full width: {full - now:.0f} s")
    if not state.subjobs and not move.feasible:
        return Decision(
            DecisionKind.START_ON_PLACEHOLDER,
            state.job,
            now,
            f"J0 has started and nothing has been done elsewhere: {restart.why}",
            (),
            full,
            (restart,),
            timeline=_on_placeholder(state, 0.0, state.requested_s, now),
            code=ReasonCode.NOTHING_DONE,
        )
    candidates = [move, restart]
    present: float = UNLIMITED
    timeline: PlannedTimeline = ()
    if state.subjobs:
        present, timeline = expected_completion(state, now, params)
        if present < UNLIMITED:
            why = f"on the {_processors(state.processors)} held: {present - now:.0f} s"
            keep = Candidate("(ii) go on without J0", True, present, (), why)
        else:
            why = "the subjobs held cannot carry the application to its end"
            keep = Candidate("(ii) go on without J0", False, None, (), why)
        candidates.insert(0, keep)
    total_s, done = state.requested_s, present
    if state.by_earlier_runs:
        total_s = state.work_s + state.weighed_left_s
        if present < UNLIMITED:
            done, _ = expected_completion(replace(state, requested_s=total_s), now, params)
    choice, _ = placeholder_choice(total_s, state.work_s, len(state.subjobs), done - now, movable, params.rules)
    if choice == MOVE:
        best, kind = move, DecisionKind.MOVE_TO_PLACEHOLDER
        timeline = _on_placeholder(state, move_s, state.work_left_s, now)
    elif choice == START_OVER:
        best, kind = restart, DecisionKind.START_ON_PLACEHOLDER
        timeline = _on_placeholder(state, 0.0, state.requested_s, now)
    else:
        best, kind, release = candidates[0], DecisionKind.KEEP_SUBJOBS, ()
    weighed = f" ({_by_earlier_runs(state)})" if state.by_earlier_runs else ""
    reason = f"J0 has started; {best.name}: {best.why}{weighed}" + _rejected(candidates, best)
    weighed_all, code = tuple(candidates), ReasonCode.EARLIEST
    return Decision(kind, state.job, now, reason, (), best.completion_s, weighed_all, (), release, timeline, code=code)


def _on_placeholder(state: ElasticState, move_s: float, work_s: float, now: float) -> PlannedTimeline:
    """At full width on J0, once a move to it is over."""
    begin, width = now + move_s, state.processes
    moves = (PlannedInterval(PlannedKind.MOVE, now, begin, width, 0, True),) if move_s > 0 else ()
    return *moves, PlannedInterval(PlannedKind.RUN, begin, begin + work_s, width, 1, True)


def plan_leaving(state: ElasticState, now: float, params: BundlingParameters) -> Decision:
    """What becomes of a job with subjobs that end before it does (section 3.2.2): they are left in time, or it is
    suspended.

    NOTHING where none has to be left. GIVE_UP where what is held does not last and the job is not suspended.
    """
    done, timeline = expected_completion(state, now, params)
    known = done if done < UNLIMITED else None
    shrink = next_shrink(state, now, params)
    if shrink is None:
        reason = f"the subjobs that are held last, {_until(known, now)}" if state.subjobs else "the job holds no subjob"
        code = ReasonCode.LASTS if state.subjobs else ReasonCode.NO_SUBJOB
        return Decision(DecisionKind.NOTHING, state.job, now, reason, (), known, timeline=timeline, code=code)
    if shrink.stays and state.movable:
        kind = DecisionKind.LEAVE
    elif params.suspend and state.movable and state.suspendable:
        kind = DecisionKind.SUSPEND
    else:
        kind = DecisionKind.GIVE_UP
    return Decision(
        kind,
        state.job,
        now,
        shrink.reason,
        (),
        known,
        cancel=shrink.leaves,
        timeline=timeline,
        begin_s=shrink.begin_s,
        end_s=shrink.end_s,
        code=ReasonCode.ENDS_BEFORE,
    )


def plan_completion(state: ElasticState, now: float, outcome: str) -> Decision:
    """What the end of the application gives up (section 3.4): all that is held, anchors last."""
    ids = tuple(subjob.id for subjob in sorted(state.subjobs, key=lambda subjob: subjob.anchor))
    reason = f"the application has ended ({outcome}); " + (f"cancel {', '.join(ids)}" if ids else "nothing is held")
    code = ReasonCode.ENDED
    return Decision(DecisionKind.COMPLETE, state.job, now, reason, expected_completion_s=now, cancel=ids, code=code)


def _processors(count: int) -> str:
    return "1 processor" if count == 1 else f"{count} processors"


def _on_one_node(state: ElasticState) -> str:
    return f"the {state.processes} processes have to stay on one node"


def _until(completion_s: float | None, now: float) -> str:
    if completion_s is None:
        return "which cannot carry it to its end"
    return f"done in {completion_s - now:.0f} s"


def _spelled_out(candidates: Sequence[Candidate]) -> str:
    told = [f"{candidate.name}: {candidate.why}" for candidate in candidates[:_TOLD]]
    if len(candidates) > _TOLD:
        told.append(f"and {len(candidates) - _TOLD} more")
    return "; ".join(told)


def _rejected(candidates: Sequence[Candidate], best: Candidate) -> str:
    others = [f"not {candidate.name}: {candidate.why}" for candidate in candidates if candidate is not best]
    if len(others) > _TOLD:
        others[_TOLD:] = [f"nor {len(others) - _TOLD} more"]
    return "; " + "; ".join(others) if others else ""
