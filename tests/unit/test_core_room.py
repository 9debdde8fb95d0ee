"""The one way from a view to what a policy may use, and from a length to a walltime: the same in both worlds."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ejbd.core.progress import ROUNDING_SLACK_S
from ejbd.core.room.claims import less_what_is_coming, less_what_starts_next
from ejbd.core.room.slots import START_UP_POLLS, Margins, margins_of, usable_slots
from ejbd.core.room.walltimes import asked_walltime, length_for_ranks, longest_walltime, slack
from ejbd.core.room.windows import Windows, windows
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import BatchJobView, BatchState, Reservations
from ejbd.sim.offering import find_slots, show_slots
from ejbd.sim.world import Costs
from tests.fakes.room_states import START_S, State, states
from tests.nightly import examples

seconds = st.integers(0, 600).map(float)


@settings(max_examples=examples(300))
@given(states(), seconds, seconds, st.booleans())
@example(State(Reservations.NODES, 4, 4, True, ((8, 90.0),), 6, True, 60.0, None), 0.0, 0.0, False)
@example(State(Reservations.PROCESSORS, 4, 4, True, ((8, 90.0),), 11, False, 1.0, 3600.0), 0.0, 0.0, False)
@example(State(Reservations.NODES, 4, 4, False, ((8, 90.0),), 13, False, 1.0, 3600.0), 5.0, 2.0, True)
def test_slots_of_a_live_view_are_those_of_the_simulator(
    state: State, poll_s: float, tail_s: float, resumes: bool
) -> None:
    """In processors and in whole nodes, by both kinds of reservation, before and after what decisions are not shown."""
    found = windows(state.view(), "q", START_S).slots()
    margins, parameters = margins_of(poll_s, tail_s), state.parameters()
    w = state.world(costs=Costs(margins=margins))
    count = find_slots(w, parameters.rules)
    assert [(w.slot_processors[i], w.slot_durations[i]) for i in range(count)] == [
        (slot.processors, slot.duration_s) for slot in found
    ]
    event(f"{count} slots by {state.by}, whole nodes: {state.whole}")
    shown = show_slots(w, count, resumes, parameters.rules)
    usable = usable_slots(found, resumes, margins, parameters.max_walltime_s)
    assert [(w.slot_processors[i], w.shown_durations[i]) for i in range(shown)] == [
        (slot.processors, slot.duration_s) for slot in usable
    ]


@given(states())
def test_slots_are_whole_units_that_grow_while_they_get_shorter(state: State) -> None:
    found = windows(state.view(), "q", START_S).slots()
    limit_s = state.parameters().max_walltime_s
    for slot in found:
        assert 0 < slot.processors <= state.free
        assert slot.processors % state.quantum == 0
        assert slot.duration_s == limit_s or slot.duration_s % state.walltime_quantum_s == 0
        assert slot.duration_s <= limit_s
    for longer, shorter in pairwise(found):
        assert longer.processors < shorter.processors and longer.duration_s > shorter.duration_s


def test_margins_are_left_out_of_slots_that_end() -> None:
    slots = [BackfillSlot(2, 3600.0), BackfillSlot(5, 600.0), BackfillSlot(8, 40.0)]
    margins = Margins(poll_s=5.0, start_up_s=15.0, tail_s=20.0)
    usable = [slot.duration_s for slot in usable_slots(slots, False, margins, 3600.0)]
    assert usable == [3600.0, 575.0, 15.0]
    resumed = [slot.duration_s for slot in usable_slots(slots, True, margins, 3600.0)]
    assert resumed == [3600.0, 560.0], "the shortest has nothing left, and what lasts as long as the limit has no end"
    assert [slot.duration_s for slot in usable_slots(slots, True, margins, UNLIMITED)] == [3560.0, 560.0]
    assert usable_slots(slots, True, Margins(), UNLIMITED) == tuple(slots)


@given(seconds, seconds, seconds, st.integers(1, 5000).map(float), st.sampled_from([1.0, 60.0]), st.booleans())
def test_what_is_asked_for_on_a_slot_fits_into_it_and_holds_the_plan(
    poll_s: float, lambda_s: float, tail_s: float, slot_s: float, quantum_s: float, resumes: bool
) -> None:
    """Of a plan that a policy can make: whole quanta that are shorter than what it was shown."""
    margins = margins_of(poll_s, tail_s)
    slot_s *= quantum_s
    usable = usable_slots([BackfillSlot(1, slot_s)], resumes, margins, UNLIMITED)
    if not usable or usable[0].duration_s < quantum_s:
        return
    length_s = math.floor(usable[0].duration_s / quantum_s) * quantum_s
    kept_s = lambda_s + tail_s
    slack_s = slack(kept_s, margins)
    limit_s = longest_walltime(usable[0].duration_s, resumes, margins, UNLIMITED)
    asked = asked_walltime(length_s, slack_s, limit_s, quantum_s)
    assert length_s <= asked <= slot_s - poll_s, "it is asked for a poll after it was seen, and ends by then"
    assert asked % quantum_s == 0
    assert asked <= length_s + slack_s + quantum_s
    for_ranks = length_for_ranks(asked, length_s, kept_s)
    assert length_s <= for_ranks <= asked


def test_the_walltime_by_hand() -> None:
    margins = margins_of(5.0, 7.0)
    assert margins == (5.0, START_UP_POLLS * 5.0, 7.0)
    assert slack(17.0, margins) == 32.0
    assert asked_walltime(240.0, 32.0, math.inf, 60.0) == 300.0
    assert asked_walltime(240.0, 0.0, math.inf, 60.0) == 240.0
    assert asked_walltime(240.0, 32.0, 299.0, 60.0) == 240.0, "what is left of the slot is no whole minute"
    assert asked_walltime(250.0, 0.0, 255.0, 60.0) == 250.0, "never less than the plan"
    assert asked_walltime(240.0 + ROUNDING_SLACK_S / 2, 0.0, math.inf, 60.0) == 240.0
    assert longest_walltime(500.0, False, margins, UNLIMITED) == 507.0
    assert longest_walltime(500.0, True, margins, UNLIMITED) == 522.0
    assert longest_walltime(500.0, True, margins, 510.0) == 510.0
    assert length_for_ranks(300.0, 240.0, 17.0) == 283.0
    assert length_for_ranks(300.0, 290.0, 17.0) == 290.0


def pending(id: str, processors: int, walltime_s: float | None = 50.0, **more: object) -> BatchJobView:
    return BatchJobView(id, id, "eve", "q", BatchState.PENDING, processors, walltime_s, **more)  # type: ignore[arg-type]


def test_jobs_that_fit_have_their_room_for_as_long_as_a_start_up() -> None:
    found = Windows(100.0, (BackfillSlot(8, UNLIMITED),))
    jobs = [
        pending("a", 3),
        pending("wide", 9),
        pending("b", 2),
        pending("held", 1, blocked=True),
        pending("c", 1, None),
    ]
    left, fitting = less_what_starts_next(found, jobs, ("q",), {}, margins_of(5.0, 0.0))
    assert left.available(0.0) == 3
    assert fitting == {"a": 100.0, "b": 100.0}
    later = Windows(115.0, found.steps)
    left, fitting = less_what_starts_next(later, jobs, ("q",), {"a": 100.0, "b": 99.0}, margins_of(5.0, 0.0))
    assert left.available(0.0) == 5, "b has not started for longer than a start-up takes"
    assert fitting == {"a": 100.0, "b": 99.0}, "it is remembered all the same"
    assert less_what_starts_next(found, jobs, ("other",), {}, margins_of(5.0, 0.0)) == (found, {})


@pytest.mark.parametrize(("asked", "left"), [([], 8), ([(3, 100.0)], 5), ([(6, 100.0), (6, 100.0)], 0)])
def test_what_was_asked_for_takes_what_it_fits_into(asked: list[tuple[int, float]], left: int) -> None:
    found = less_what_is_coming(Windows(0.0, (BackfillSlot(8, UNLIMITED),)), asked)
    assert found.available(100.0) == left
