"""Jobs whose processes have to stay on one node: where the application moves, it moves as a whole.

So it is where DMTCP has no plugin that it could span hosts with, and where one `mpirun` starts the ranks (Open MPI).
The handlers of :mod:`ejbd.core.bundling` are these for such a job (`ElasticState.node_limit`): a waiting job starts on
one subjob of one node, and a running one grows by leaving its subjob for a wider one. A union of subjobs, and with it
case 3, is out of the question.
"""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import expected_completion
from ejbd.core.decision import Candidate, Decision, DecisionKind, SubjobRequest
from ejbd.core.progress import ROUNDING_SLACK_S, degree, fewest, round_up, stretch
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState


def plan_wait_together(
    state: ElasticState, slots: Sequence[BackfillSlot], now: float, params: BundlingParameters
) -> Decision:
    """Whether a waiting job can start on one node of what is free now, and be carried to its end there."""
    seen = tuple(slots)
    if not seen:
        return Decision(DecisionKind.NOTHING, state.job, now, "no processor can be used now")
    resume = params.lambda_s if state.work_s > 0.0 else 0.0
    candidates = []
    lowest = params.omax + 1
    for index, slot in enumerate(seen):
        processors = _processors_on_a_node(state, slot, params)
        if processors == 0 or degree(state.processes, processors) >= lowest:
            continue
        lowest = degree(state.processes, processors)
        needed = resume + state.work_left_s * stretch(lowest, params.delta)
        length = round_up(needed, params.walltime_quantum_s)
        fits = length < slot.duration_s or (length == slot.duration_s and slot.duration_s >= params.max_walltime_s)
        name = "case 1" if slot.duration_s >= params.max_walltime_s else "case 2"
        why = f"{processors} on one node (degree {lowest}) take {round_up(needed):.0f} s"
        if not fits:
            why += f" and may be used for {slot.duration_s:.0f} s"
        request = (SubjobRequest(processors, length, index),) if fits else ()
        candidates.append(Candidate(name, fits, now + round_up(needed) if fits else None, request, why))
    best = _earliest(candidates)
    if best is not None:
        reason = f"start by {best.name}: {best.why}"
        return Decision(
            DecisionKind.START, state.job, now, reason, best.requests, best.completion_s, tuple(candidates), seen
        )
    if candidates:
        reason = "no slot carries the job to its end: " + "; ".join(c.why for c in candidates)
    else:
        reason = _too_narrow(state, params)
    return Decision(DecisionKind.NOTHING, state.job, now, reason, (), None, tuple(candidates), seen)


def plan_running_together(
    state: ElasticState, slots: Sequence[BackfillSlot], now: float, params: BundlingParameters
) -> Decision:
    """Whether a running job gains by moving as a whole to a wider subjob of one node: only if it completes earlier.

    What it holds now is left in that move. A subjob that holds the user's shell has to last until the completion.
    """
    seen = tuple(slots)
    present, _ = expected_completion(state, now, params)
    known = present if present < UNLIMITED else None
    skip = _no_move(state, present, now, params)
    if skip or not seen:
        reason = skip or "no processor can be used now"
        return Decision(DecisionKind.NOTHING, state.job, now, reason, (), known, (), seen)
    shell_end = min((held.end_s for held in state.subjobs if held.anchor), default=UNLIMITED)
    lowest = degree(state.processes, state.processors)
    candidates = []
    for index, slot in enumerate(seen):
        processors = _processors_on_a_node(state, slot, params)
        if processors == 0 or degree(state.processes, processors) >= lowest:
            continue
        lowest = degree(state.processes, processors)
        needed = params.lambda_s + state.work_left_s * stretch(lowest, params.delta)
        done = now + round_up(needed)
        length = min(round_up(needed, params.walltime_quantum_s), slot.duration_s)
        why = f"all processes to {processors} on one node (degree {lowest}), done in {done - now:.0f} s"
        request = SubjobRequest(processors, length, index)
        if needed > slot.duration_s + ROUNDING_SLACK_S:
            why += f", and may be used for {slot.duration_s:.0f} s"
            candidates.append(Candidate("whole move", False, None, (), why))
        elif done > shell_end:
            why += f", and the subjob with the user's shell ends after {shell_end - now:.0f} s"
            candidates.append(Candidate("whole move", False, None, (), why))
        elif done >= present:
            candidates.append(Candidate("whole move", False, done, (), why + ", no earlier"))
        else:
            candidates.append(Candidate("whole move", True, done, (request,), why))
    best = _earliest(candidates)
    if best is not None:
        reason = f"{best.name}: {best.why}"
        return Decision(
            DecisionKind.EXPAND, state.job, now, reason, best.requests, best.completion_s, tuple(candidates), seen
        )
    held = f"stay on {state.processors} processors"
    if candidates:
        reason = f"{held}: " + "; ".join(c.why for c in candidates)
    else:
        reason = f"{held}: {_together(state)}, where {state.node_limit} can be had at most: no lower degree"
    return Decision(DecisionKind.NOTHING, state.job, now, reason, (), known, tuple(candidates), seen)


def _no_move(state: ElasticState, present: float, now: float, params: BundlingParameters) -> str:
    """Why moving is out of the question, or ""."""
    if not state.subjobs:
        return "the job holds no subjob"
    if not state.movable:
        return "the application cannot be moved from where it is"
    if state.on_placeholder:
        return "the place holder J0 runs the application at full width"
    if state.stalled_until_s is not None and state.stalled_until_s > now:
        return "a migration is under way"
    if state.processors >= state.processes:
        return f"every one of the {state.processes} processes has a processor"
    least = max(params.lambda_s, params.min_left_s)
    if present - now <= least:
        return f"done in {present - now:.0f} s, within a migration's {least:.0f} s"
    return ""


def _processors_on_a_node(state: ElasticState, slot: BackfillSlot, params: BundlingParameters) -> int:
    """The fewest processors of one node that reach the lowest degree there; 0 where O_max is exceeded."""
    unit = params.processor_quantum
    offered = min(slot.processors, state.node_limit or 0) // unit * unit
    if offered <= 0 or offered * params.omax < state.processes:
        return 0
    least = fewest(state.processes, degree(state.processes, min(offered, state.processes)))
    return min(offered, -(-least // unit) * unit)


def _earliest(candidates: Sequence[Candidate]) -> Candidate | None:
    feasible = [c for c in candidates if c.feasible and c.completion_s is not None]
    return min(feasible, key=lambda c: (c.completion_s or 0.0, c.requests[0].processors), default=None)


def _together(state: ElasticState) -> str:
    return f"the {state.processes} processes have to stay on one node"


def _too_narrow(state: ElasticState, params: BundlingParameters) -> str:
    needed = -(-state.processes // params.omax)
    return f"{_together(state)}: {state.node_limit} are free on one node, and O_max {params.omax} needs {needed}"
