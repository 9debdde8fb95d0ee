"""Degree, rate and work (Eq. 1 to 3), and the paper's Figure 2 as a timeline."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.progress import (
    degree,
    fewest,
    rate,
    round_up,
    stretch,
)
from tests.fakes.eq3 import completion, move_interval, progress, run_interval, time_left, work

# Figure 2: P = 4, R = 800 s, lambda = 20 s. What is printed there is where progress stands at each interval's end.
FIGURE_2 = (
    run_interval(0, 400, 1),
    move_interval(400, 420, 2),
    run_interval(420, 820, 2),
    move_interval(820, 840, 4),
    run_interval(840, 1240, 4),
    move_interval(1240, 1260, 4),
    run_interval(1260, 1460, 2),
)


@pytest.mark.parametrize(
    ("processes", "processors", "expected"), [(4, 1, 4), (4, 2, 2), (4, 3, 2), (4, 4, 1), (4, 9, 1), (100, 13, 8)]
)
def test_degree_is_the_load_of_the_busiest_processor(processes: int, processors: int, expected: int) -> None:
    assert degree(processes, processors) == expected


def test_delta_applies_to_oversubscription_only() -> None:
    assert rate(4, 4, 2.0) == 1.0
    assert rate(4, 8, 2.0) == 1.0
    assert rate(4, 2, 2.0) == 0.25
    assert rate(4, 0, 2.0) == 0.0
    assert stretch(1, 3.0) == 1.0
    assert stretch(3, 2.0) == 6.0


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_fewest_is_the_least_that_reaches_a_degree(processes: int, processors: int) -> None:
    reached = degree(processes, processors)
    least = fewest(processes, reached)
    assert least <= processors
    assert degree(processes, least) == reached
    assert least == 1 or degree(processes, least - 1) > reached


@pytest.mark.parametrize(
    ("seconds", "quantum", "expected"),
    [(10.0, 1.0, 10), (10.0000005, 1.0, 10), (10.00001, 1.0, 11), (61.0, 60.0, 120), (60.0, 60.0, 60), (0.0, 1.0, 0)],
)
def test_lengths_are_rounded_up_but_not_by_a_rounding_error(seconds: float, quantum: float, expected: float) -> None:
    assert round_up(seconds, quantum) == expected


def test_what_never_ends_stays_infinite() -> None:
    assert math.isinf(round_up(math.inf, 60.0))
    assert math.isinf(time_left(1.0, 4, 0, 1.0))
    assert time_left(0.0, 4, 0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("until", "share"),
    [(400, 0.125), (420, 0.125), (820, 0.375), (840, 0.375), (1240, 0.875), (1260, 0.875), (1460, 1)],
)
def test_figure_2_progress_at_the_end_of_each_interval(until: float, share: float) -> None:
    assert progress(FIGURE_2, 4, 800, 1.0, until) == pytest.approx(share)


def test_figure_2_completes_after_1460_seconds() -> None:
    assert work(FIGURE_2, 4, 1.0) == pytest.approx(800)
    assert completion(FIGURE_2, 4, 800, 1.0) == pytest.approx(1460)
    assert completion(FIGURE_2[:-1], 4, 800, 1.0) is None
    assert sum(interval.length_s for interval in FIGURE_2) == 1460


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 500), st.integers(0, 20)), max_size=8),
    st.integers(1, 20),
    st.floats(0.8, 2.0),
)
def test_progress_never_falls_and_never_passes_one(
    parts: list[tuple[bool, int, int]], processes: int, delta: float
) -> None:
    now = 0
    timeline = []
    for runs, length, processors in parts:
        make = run_interval if runs else move_interval
        timeline.append(make(now, now + length, processors))
        now += length
    shares = [progress(tuple(timeline), processes, 300, delta, t) for t in range(0, now + 50, 50)]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
