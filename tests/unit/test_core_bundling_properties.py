"""What holds for every decision, whatever the state and the slots."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.handlers import plan_placeholder_start, plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import expected_completion, next_shrink
from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.delta import delta_at
from ejbd.core.progress import degree, fewest, round_up, stretch
from ejbd.core.room.windows import Windows
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.timeline import PlannedKind
from tests.fakes.eq3 import completion, work

NOW = 10_000

PARAMETERS = st.builds(
    BundlingParameters,
    omax=st.integers(1, 12),
    lambda_s=st.sampled_from([0.0, 20.0, 120.0]),
    delta=st.sampled_from([1.0, 1.5, 0.5, 0.83]),
    processor_quantum=st.sampled_from([1, 1, 4]),
    walltime_quantum_s=st.sampled_from([1.0, 1.0, 60.0]),
)
PROCESSES = st.integers(2, 70)
REQUESTED = st.integers(10, 9000)


@st.composite
def staircases(draw: st.DrawFn, params: BundlingParameters) -> tuple[BackfillSlot, ...]:
    unit, quantum = params.processor_quantum, params.walltime_quantum_s
    growth = draw(st.lists(st.integers(1, 10), max_size=4))
    lengths = sorted(draw(st.sets(st.integers(1, 200), min_size=len(growth), max_size=len(growth))), reverse=True)
    durations: list[float] = [length * 60 if quantum == 60 else length * 40 for length in lengths]
    has_type_i = draw(st.booleans())
    if durations and has_type_i:
        durations[0] = UNLIMITED
    total = 0
    steps = []
    for more, duration in zip(growth, durations, strict=True):
        total += more * unit
        steps.append(BackfillSlot(total, duration))
    return tuple(steps)


@st.composite
def worlds(draw: st.DrawFn, *, holds: bool) -> tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters]:
    params = draw(PARAMETERS)
    processes = draw(PROCESSES)
    requested = draw(REQUESTED)
    done = draw(st.one_of(st.just(0), st.integers(0, requested)))
    subjobs: list[HeldSubjob] = []
    room = math.ceil(processes / params.processor_quantum)
    while holds and room > 0 and len(subjobs) < 4 and (not subjobs or draw(st.booleans())):
        units = draw(st.integers(1, room))
        room -= units
        end = NOW + draw(st.integers(int(params.lambda_s), 40_000))
        anchor = draw(st.integers(0, 9)) == 0
        subjobs.append(HeldSubjob(f"J{len(subjobs) + 1}", units * params.processor_quantum, end, anchor))
    state = ElasticState("job", processes, requested, done, tuple(subjobs))
    return state, draw(staircases(params)), params


def check_requests_fit(
    decision: Decision, state: ElasticState, slots: tuple[BackfillSlot, ...], params: BundlingParameters
) -> None:
    left = Windows(NOW, slots, params.processor_quantum)
    for request in decision.requests:
        assert request.processors >= 1
        assert request.processors % params.processor_quantum == 0
        assert request.length_s <= slots[request.slot_index].duration_s
        left = left.take(request.processors, request.length_s)  # raises where a slot would be overfilled
    whole = math.ceil(state.processes / params.processor_quantum) * params.processor_quantum
    assert state.processors + sum(request.processors for request in decision.requests) <= whole


def after(decision: Decision, state: ElasticState, params: BundlingParameters) -> ElasticState:
    """The state once the requested subjobs have started."""
    new = [HeldSubjob(f"N{i}", r.processors, NOW + r.length_s) for i, r in enumerate(decision.requests)]
    stalls = decision.kind is DecisionKind.EXPAND or state.work_s > 0
    return ElasticState(
        state.job,
        state.processes,
        state.requested_s,
        state.work_s,
        (*state.subjobs, *new),
        NOW + params.lambda_s if stalls else None,
    )


@given(worlds(holds=False))
def test_a_start_fits_its_slots_and_is_expected_as_the_plan_says(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    state, slots, params = world
    decision = plan_wait(state, slots, NOW, params)
    check_requests_fit(decision, state, slots, params)
    feasible = [c.completion_s for c in decision.candidates if c.feasible and c.completion_s is not None]
    if decision.kind is DecisionKind.NOTHING:
        assert not feasible
        assert decision.requests == ()
        return
    assert decision.expected_completion_s == min(feasible)
    started = after(decision, state, params)
    assert degree(state.processes, started.processors) <= params.omax
    done, timeline = expected_completion(started, NOW, params)
    assert done == decision.expected_completion_s
    assert Counter(i.kind for i in timeline)[PlannedKind.MOVE] <= 2
    check_timeline(decision)


def check_timeline(decision: Decision) -> None:
    """What a decision plans begins now, is seamless and ends where the job is expected to, or waits without an end."""
    assert Decision.from_json(json.loads(json.dumps(decision.to_json()))) == decision
    at = float(NOW)
    for interval in decision.timeline:
        assert interval.start_s == pytest.approx(at) and interval.length_s > 0
        assert (interval.degree > 0) == (interval.kind is PlannedKind.RUN)
        assert (interval.processors > 0) == (interval.kind is not PlannedKind.SUSPENDED)
        at = interval.end_s
    if decision.expected_completion_s is not None:
        assert decision.expected_completion_s == NOW + round_up(at - NOW)
    else:
        assert not decision.timeline or decision.timeline[-1].kind is PlannedKind.SUSPENDED


@given(worlds(holds=False))
def test_no_start_is_missed_that_one_slot_alone_allows(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    state, slots, params = world
    decision = plan_wait(state, slots, NOW, params)
    resume = params.lambda_s if state.work_s else 0
    for slot in slots:
        overload = degree(state.processes, slot.processors)
        if overload > params.omax:
            continue
        seconds = resume + state.work_left_s * stretch(overload, delta_at(params.delta, overload))
        if round_up(seconds, params.walltime_quantum_s) < slot.duration_s:
            assert decision.expected_completion_s is not None
            assert decision.expected_completion_s <= NOW + round_up(seconds)


@given(worlds(holds=True))
def test_growing_fits_and_never_makes_the_completion_later(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    state, slots, params = world
    present, _ = expected_completion(state, NOW, params)
    decision = plan_running(state, slots, NOW, params)
    check_requests_fit(decision, state, slots, params)
    check_timeline(decision)
    if decision.kind is DecisionKind.NOTHING:
        assert decision.requests == ()
        assert decision.expected_completion_s == (present if present < UNLIMITED else None)
        return
    assert decision.expected_completion_s is not None
    assert decision.expected_completion_s < present
    done, _ = expected_completion(after(decision, state, params), NOW, params)
    assert done == decision.expected_completion_s
    assert any(c.completion_s == done and c.requests == decision.requests for c in decision.candidates)


@given(worlds(holds=True))
def test_a_timeline_is_seamless_and_makes_the_work_that_is_left(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    state, _, params = world
    done, timeline = expected_completion(state, NOW, params)
    end: float = NOW
    for interval in timeline:
        assert abs(interval.start_s - end) < 1e-6
        assert interval.length_s > 0
        end = interval.end_s
    made = work(timeline, state.processes, params.delta)
    assert made <= state.work_left_s + 1e-6
    if done < UNLIMITED:
        assert abs(made - state.work_left_s) < 1e-6
        assert done == NOW + round_up(end - NOW)
        finished = completion(timeline, state.processes, state.work_left_s, params.delta)
        assert finished is None or abs(finished - end) < 1e-3 or state.work_left_s == 0


@given(worlds(holds=True))
def test_the_next_shrink_is_the_one_in_the_plan(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    state, _, params = world
    done, timeline = expected_completion(state, NOW, params)
    shrink = next_shrink(state, NOW, params)
    moves = [interval for interval in timeline if interval.kind is PlannedKind.MOVE]
    if shrink is None:
        assert moves == []
        assert done < UNLIMITED
        return
    by_id = {subjob.id: subjob for subjob in state.subjobs}
    assert shrink.end_s == min(subjob.end_s for subjob in state.subjobs)
    assert shrink.begin_s == shrink.end_s - params.lambda_s
    assert sorted(shrink.leaves + shrink.stays) == sorted(by_id)
    if not shrink.stays:
        assert math.isinf(done)
        return
    assert not any(by_id[id].anchor for id in shrink.leaves)
    assert degree(state.processes, sum(by_id[id].processors for id in shrink.stays)) <= params.omax
    assert all(by_id[id].end_s > shrink.end_s for id in shrink.stays)
    assert params.lambda_s == 0 or moves[0].end_s == shrink.end_s


@given(worlds(holds=True))
def test_the_start_of_the_place_holder_never_makes_the_completion_later(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    state, _, params = world
    present, _ = expected_completion(state, NOW, params)
    decision = plan_placeholder_start(state, NOW, params)
    assert decision.expected_completion_s is not None
    assert decision.expected_completion_s <= present
    assert decision.expected_completion_s <= NOW + state.requested_s
    kept = {subjob.id for subjob in state.subjobs} - set(decision.cancel)
    if decision.kind is not DecisionKind.KEEP_SUBJOBS:
        assert kept == {subjob.id for subjob in state.subjobs if subjob.anchor}


@given(worlds(holds=True))
def test_every_decision_survives_json_and_speaks(
    world: tuple[ElasticState, tuple[BackfillSlot, ...], BundlingParameters],
) -> None:
    state, slots, params = world
    for decision in (plan_running(state, slots, NOW, params), plan_placeholder_start(state, NOW, params)):
        assert Decision.from_json(decision.to_json()) == decision
        assert decision.reason
        assert "inf" not in decision.reason
        assert all(candidate.why for candidate in decision.candidates)


@given(PROCESSES, st.integers(1, 100), REQUESTED)
def test_case_1_is_the_papers_formula(processes: int, free: int, requested: int) -> None:
    decision = plan_wait(
        ElasticState("job", processes, requested), (BackfillSlot(free, UNLIMITED),), NOW, BundlingParameters()
    )
    overload = degree(processes, free)
    if overload > 8:
        assert decision.kind is DecisionKind.NOTHING
    else:
        request = decision.requests[0]
        assert (request.processors, request.length_s) == (fewest(processes, overload), overload * requested)
