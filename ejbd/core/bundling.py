"""Elastic job bundling: when to start, grow and move an elastic job (Liu & Weissman, SC'15, section 3).

The paper's handlers, one function each, as pure functions of a job's state and of the slots that can be used now. Two
of the paper's formulas are misprints and are read so: P_1 = ceil(P_t/S.P_max) is a degree of over-subscription, not a
count of processors (the subjob gets the fewest processors that reach that degree), and the third condition of WAIT case
3 asks for a lower degree on both slots together than on the type-I slot alone, not for a higher one.

Completion times are rounded up to whole seconds from now, walltimes to whole walltime quanta.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from ejbd.core.decision import Candidate, Decision, DecisionKind, SubjobRequest
from ejbd.core.plan import (
    BundlingParameters,
    ElasticState,
    HeldSubjob,
    PlannedEnd,
    Shrink,
    expected_completion,
    next_shrink,
    planned_ends,
    walk,
)
from ejbd.core.progress import degree as degree_of
from ejbd.core.progress import fewest, round_up, stretch
from ejbd.core.shapes import UNLIMITED, BackfillSlot

__all__ = [
    "BundlingParameters",
    "ElasticState",
    "HeldSubjob",
    "Shrink",
    "expected_completion",
    "next_shrink",
    "plan_completion",
    "plan_placeholder_start",
    "plan_running",
    "plan_wait",
]


_TOLD = 4  # candidates spelled out in a reason; the decision carries them all


def plan_wait(state: ElasticState, slots: Sequence[BackfillSlot], now: float, params: BundlingParameters) -> Decision:
    """Whether a waiting job can start on what is free now (section 3.2.1, cases 1 to 3).

    A job that went back to waiting has kept its work: it asks for what is left, and restarting costs a lambda. A
    subjob, or the longer of two, must carry the job to its end. Of equal completions the lowest case wins. Case 3 is
    tried on every two slots, which under EASY are the paper's one pair.
    """
    seen = tuple(slots)
    if not seen:
        return Decision(DecisionKind.NOTHING, state.job, now, "no processor can be used now")
    steps = _useful_steps(state.processes, seen, params)
    if not steps:
        most = seen[-1].processors
        needed = -(-state.processes // params.omax)
        reason = f"{_processors(most)} free, and O_max {params.omax} needs {needed} for {state.processes} processes"
        return Decision(DecisionKind.NOTHING, state.job, now, reason, slots=seen)

    first = seen[steps[0].slot]
    candidates = [] if first.duration_s >= params.max_walltime_s else [_no_case_1(seen, params)]
    for step in steps:
        open_ended = seen[step.slot].duration_s >= params.max_walltime_s
        name = "case 1" if open_ended else "case 2"
        candidates.append(_whole_run(name, state, seen, step, now, params))
    for base, wide in combinations(steps, 2):
        candidates.append(_two_subjobs(state, seen, base, wide, now, params))

    best = _earliest(candidates)
    if best is None:
        reason = "no slot carries the job to its end: " + _told(candidates)
        return Decision(DecisionKind.NOTHING, state.job, now, reason, (), None, tuple(candidates), seen)
    reason = f"start by {best.name}: {best.why}" + _rejected(candidates, best)
    return Decision(
        DecisionKind.START, state.job, now, reason, best.requests, best.completion_s, tuple(candidates), seen
    )


class _Step(NamedTuple):
    """A slot worth using: it reaches a lower degree of over-subscription than every longer slot."""

    slot: int
    processors: int  # the fewest, in whole units, that reach the degree
    stretch: float
    degree: int


def _useful_steps(processes: int, slots: tuple[BackfillSlot, ...], params: BundlingParameters) -> list[_Step]:
    steps: list[_Step] = []
    unit = params.processor_quantum
    lowest = params.omax + 1
    for index, slot in enumerate(slots):
        if slot.processors * (lowest - 1) < processes:
            continue
        degree = degree_of(processes, min(slot.processors, processes))
        processors = _whole_units(fewest(processes, degree), unit)
        if processors <= slot.processors:
            steps.append(_Step(index, processors, stretch(degree, params.delta), degree))
            lowest = degree
            if degree == 1:
                break
    return steps


def _whole_run(
    name: str,
    state: ElasticState,
    slots: tuple[BackfillSlot, ...],
    step: _Step,
    now: float,
    params: BundlingParameters,
) -> Candidate:
    """WAIT cases 1 and 2: one subjob from start to end."""
    resume = params.lambda_s if state.work_s > 0.0 else 0.0
    needed = resume + step.stretch * state.work_left_s
    length = round_up(needed, params.walltime_quantum_s)
    limit = slots[step.slot].duration_s
    why = f"{_processors(step.processors)} (degree {step.degree}) take {round_up(needed):.0f} s"
    if length < limit or (length == limit and limit >= params.max_walltime_s):
        request = SubjobRequest(step.processors, length, step.slot)
        return Candidate(name, True, now + round_up(needed), (request,), why)
    return Candidate(name, False, None, (), f"{why} and may be used for {limit:.0f} s")


def _no_case_1(slots: tuple[BackfillSlot, ...], params: BundlingParameters) -> Candidate:
    if slots[0].duration_s < params.max_walltime_s:
        return Candidate("case 1", False, None, (), "no processor is free without an end")
    why = f"{_processors(slots[0].processors)} without an end: too few for O_max {params.omax}"
    return Candidate("case 1", False, None, (), why)


def _two_subjobs(
    state: ElasticState,
    slots: tuple[BackfillSlot, ...],
    base: _Step,
    wide: _Step,
    now: float,
    params: BundlingParameters,
) -> Candidate:
    """WAIT case 3: run on both slots, move off the shorter before it ends, and finish on the longer."""
    resume = params.lambda_s if state.work_s > 0.0 else 0.0
    short = slots[wide.slot].duration_s
    together = short - params.lambda_s - resume
    if together <= 0.0:
        why = f"the wider slot ends after {short:.0f} s, before it has paid for a migration of {params.lambda_s:.0f} s"
        return Candidate("case 3", False, None, (), why)
    left = state.work_left_s - together / wide.stretch
    needed = short + left * base.stretch if left > 0.0 else resume + wide.stretch * state.work_left_s
    length = round_up(needed, params.walltime_quantum_s)
    limit = slots[base.slot].duration_s
    why = (
        f"{_processors(wide.processors)} (degree {wide.degree}) for {short:.0f} s, then {base.processors} "
        f"(degree {base.degree}), take {round_up(needed):.0f} s"
    )
    if length < limit or (length == limit and limit >= params.max_walltime_s):
        requests = (
            SubjobRequest(base.processors, length, base.slot),
            SubjobRequest(wide.processors - base.processors, short, wide.slot),
        )
        return Candidate("case 3", True, now + round_up(needed), requests, why)
    return Candidate("case 3", False, None, (), f"{why}, and the longer slot ends after {limit:.0f} s")


def plan_running(
    state: ElasticState, slots: Sequence[BackfillSlot], now: float, params: BundlingParameters
) -> Decision:
    """Whether a running job gains by further subjobs (section 3.2.2, cases 1 to 3): only if it completes earlier.

    Case 1 is a subjob that lasts to the completion, case 2 one that has to be left before, case 3 one of each. Every
    level of the plan, now and after each planned shrink, is considered for the fewest processors that reach the lowest
    degree there. Of equal completions the fewest processors win.
    """
    seen = tuple(slots)
    held = state.processors
    ends = planned_ends(state.subjobs)
    stalled = state.stalled_until_s is not None and state.stalled_until_s > now
    begin = state.stalled_until_s if stalled and state.stalled_until_s is not None else now
    levels: list[int] = []
    done = walk(state.processes, state.work_left_s, ends, begin, params, levels)
    present = now + round_up(done - now)
    known = present if present < UNLIMITED else None
    skip = _no_expansion(state, seen, held, stalled, present, now, params)
    if skip:
        return Decision(DecisionKind.NOTHING, state.job, now, skip, (), known, (), seen)

    candidates: list[Candidate] = []
    for option in _expansions(state.processes, held, levels, seen, params):
        candidates.append(_expanded(option, state, ends, seen, present, now, params))
    best = _earliest(candidates)
    if best is None:
        reason = f"stay on {_processors(held)}, {_until(known, now)}"
        reason += ": " + _told(candidates) if candidates else ": what is free does not lower the degree"
        return Decision(DecisionKind.NOTHING, state.job, now, reason, (), known, tuple(candidates), seen)
    reason = f"grow by {best.name}: {best.why}; as it is, {_until(known, now)}" + _rejected(candidates, best)
    return Decision(
        DecisionKind.EXPAND, state.job, now, reason, best.requests, best.completion_s, tuple(candidates), seen
    )


def _no_expansion(
    state: ElasticState,
    slots: tuple[BackfillSlot, ...],
    held: int,
    stalled: bool,
    present: float,
    now: float,
    params: BundlingParameters,
) -> str:
    """Why growing is out of the question, or nothing."""
    if not state.subjobs:
        return "the job holds no subjob"
    if not state.movable:
        return "the application has no checkpoint engine and cannot be moved"
    if state.on_placeholder:
        return "the place holder J0 runs the application at full width"
    if stalled:
        return "a migration is under way"
    if held >= state.processes:
        return f"every one of the {state.processes} processes has a processor"
    if present - now <= params.lambda_s:
        return f"done in {present - now:.0f} s, within a migration's {params.lambda_s:.0f} s"
    if not slots:
        return "no processor can be used now"
    return ""


Option = tuple[tuple[int, int], ...]  # (slot, processors) of each subjob to add


def _expansions(
    processes: int, held: int, levels: list[int], slots: tuple[BackfillSlot, ...], params: BundlingParameters
) -> list[Option]:
    """What could be added, from each slot and from the longest together with a wider one; fewest processors first."""
    unit = params.processor_quantum
    room = _whole_units(processes, unit) - held
    singles: list[Option] = []
    pairs: list[Option] = []
    longest: list[int] = []
    offered: set[int] = set()
    widest = 0
    for index, slot in enumerate(slots):
        available = min(slot.processors, room) // unit * unit
        if available <= widest:
            continue
        widest = available
        for level in levels:
            least = fewest(processes, degree_of(processes, level + available))
            processors = _whole_units(least - level, unit)
            if not 1 <= processors <= available or processors in offered:
                continue
            offered.add(processors)
            singles.append(((index, processors),))
            if index == 0:
                longest.append(processors)
            else:
                pairs.extend(((0, p), (index, processors - p)) for p in longest if p < processors)
    return sorted(singles + pairs, key=_processors_added)


def _processors_added(option: Option) -> int:
    return sum(processors for _, processors in option)


def _expanded(
    option: Option,
    state: ElasticState,
    ends: list[PlannedEnd],
    slots: tuple[BackfillSlot, ...],
    present: float,
    now: float,
    params: BundlingParameters,
) -> Candidate:
    """One expansion, walked from now with a stall of lambda. Feasible only where it completes strictly earlier."""
    plan = sorted(ends + [(now + slots[slot].duration_s, processors, False) for slot, processors in option])
    done = walk(state.processes, state.work_left_s, plan, now + params.lambda_s, params)
    short = [slots[slot].duration_s < done - now for slot, _ in option]
    name = "case 3" if len(option) == 2 else "case 2" if short[0] else "case 1"
    added = option[0][1]
    if len(option) == 1:
        why = f"{_processors(added)} more"
        if short[0]:
            why += f" for {slots[option[0][0]].duration_s:.0f} s"
    else:
        why = f"{_processors(option[0][1])} more, and {option[1][1]} for {slots[option[1][0]].duration_s:.0f} s"
    if done == UNLIMITED:
        return Candidate(name, False, None, (), f"{why}: what stays after a shrink exceeds O_max or is nothing")
    seconds = round_up(done - now)
    why += f", done in {seconds:.0f} s"
    if now + seconds >= present:
        return Candidate(name, False, now + seconds, (), f"{why}, no earlier")
    length = round_up(done - now, params.walltime_quantum_s)
    requests = tuple(
        SubjobRequest(processors, min(length, slots[slot].duration_s), slot) for slot, processors in option
    )
    return Candidate(name, True, now + seconds, requests, why)


def plan_placeholder_start(state: ElasticState, now: float, params: BundlingParameters) -> Decision:
    """What to do once J0 has started (section 3.3): migrate to it (i), go on without it (ii), start over on it (iii).

    On a tie going on wins, then migrating. A job that holds no subjob runs on J0, from its last checkpoint where that
    pays. `cancel` names the subjobs to be released once J0 runs the application; an anchor is never among them.
    """
    full = now + round_up(state.requested_s)
    moved = now + round_up(params.lambda_s + state.work_left_s)
    release = tuple(subjob.id for subjob in state.subjobs if not subjob.anchor)
    migrate = Candidate(
        "(i) migrate to J0",
        state.movable and (state.work_s > 0.0 or bool(state.subjobs)),
        moved if state.movable else None,
        (),
        f"a migration of {params.lambda_s:.0f} s and {state.work_left_s:.0f} s at full width: {moved - now:.0f} s"
        if state.movable
        else "the application has no checkpoint engine",
    )
    restart = Candidate("(iii) start on J0", True, full, (), f"the whole run at full width: {full - now:.0f} s")
    if not state.subjobs and not migrate.feasible:
        return Decision(
            DecisionKind.START_ON_PLACEHOLDER,
            state.job,
            now,
            f"J0 has started and nothing has been done elsewhere: {restart.why}",
            (),
            full,
            (restart,),
        )
    candidates = [migrate, restart]
    if state.subjobs:
        present, _ = expected_completion(state, now, params)
        if present < UNLIMITED:
            why = f"on the {_processors(state.processors)} held: {present - now:.0f} s"
            candidates.insert(0, Candidate("(ii) go on without J0", True, present, (), why))
        else:
            why = "the subjobs held cannot carry the application to its end"
            candidates.insert(0, Candidate("(ii) go on without J0", False, None, (), why))
    best = _earliest(candidates)
    if best is None or best is restart:
        best, kind = restart, DecisionKind.START_ON_PLACEHOLDER
    elif best is migrate:
        kind = DecisionKind.MOVE_TO_PLACEHOLDER
    else:
        kind, release = DecisionKind.KEEP_SUBJOBS, ()
    reason = f"J0 has started; {best.name}: {best.why}" + _rejected(candidates, best)
    return Decision(kind, state.job, now, reason, (), best.completion_s, tuple(candidates), (), release)


def plan_completion(state: ElasticState, now: float, placeholder: str | None = None) -> Decision:
    """What the end of the application cancels (section 3.4): its subjobs, anchors last, and a J0 that still waits."""
    ids = [subjob.id for subjob in sorted(state.subjobs, key=lambda subjob: subjob.anchor)]
    if placeholder is not None and placeholder not in ids:
        ids.insert(0, placeholder)
    reason = "the application has completed; " + (f"cancel {', '.join(ids)}" if ids else "nothing is left to cancel")
    return Decision(DecisionKind.COMPLETE, state.job, now, reason, expected_completion_s=now, cancel=tuple(ids))


def _whole_units(processors: int, unit: int) -> int:
    return processors if unit == 1 else -(-processors // unit) * unit


def _earliest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The feasible candidate that completes first; of equals the first."""
    best: Candidate | None = None
    for candidate in candidates:
        if not candidate.feasible or candidate.completion_s is None:
            continue
        if best is None or best.completion_s is None or candidate.completion_s < best.completion_s:
            best = candidate
    return best


def _processors(count: int) -> str:
    return "1 processor" if count == 1 else f"{count} processors"


def _until(completion_s: float | None, now: float) -> str:
    if completion_s is None:
        return "which cannot carry it to its end"
    return f"done in {completion_s - now:.0f} s"


def _told(candidates: Sequence[Candidate]) -> str:
    told = [f"{candidate.name}: {candidate.why}" for candidate in candidates[:_TOLD]]
    if len(candidates) > _TOLD:
        told.append(f"and {len(candidates) - _TOLD} more")
    return "; ".join(told)


def _rejected(candidates: Sequence[Candidate], best: Candidate) -> str:
    others = [f"not {candidate.name}: {candidate.why}" for candidate in candidates if candidate is not best]
    if len(others) > _TOLD:
        others[_TOLD:] = [f"nor {len(others) - _TOLD} more"]
    return "; " + "; ".join(others) if others else ""
