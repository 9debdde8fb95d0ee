"""Chains of place holders: what each is asked for, and how many there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.continuation import Link, links, next_link


def test_all_but_the_last_are_as_long_as_the_queue_lets() -> None:
    assert next_link(240.0, 24.0, 0.0, 1.0) == Link(24.0, 0.0, False)
    assert next_link(20.0, 24.0, 1.0, 1.0) == Link(21.0, 1.0, True)
    assert next_link(22.5, 24.0, 1.0, 1.0) == Link(23.5, 0.5, True), "no more than the queue lets"
    assert next_link(23.5, 24.0, 1.0, 1.0) == Link(24.0, 0.0, False)


def test_ten_days_in_a_queue_of_one_day() -> None:
    assert links(240.0, 24.0, 0.0, 0.0) == 10
    assert links(240.0, 24.0, 0.5, 0.5) == 11
    assert links(24.0, 24.0, 5.0, 5.0) == 1
    assert links(25.0, 10.0, 5.0, 5.0) is None, "nothing is done between a restart and the next checkpoint"


@given(st.floats(1, 1000), st.floats(1, 100), st.floats(0, 10), st.floats(0, 10))
def test_the_count_is_that_of_the_links_one_by_one(
    work_s: float, limit_s: float, restart_s: float, tail_s: float
) -> None:
    told = links(work_s, limit_s, restart_s, tail_s)
    if told is None or told > 500:
        return
    left_s, count = work_s, 0
    while True:
        count += 1
        link = next_link(left_s, limit_s, restart_s if count > 1 else 0.0, tail_s)
        if link.last:
            break
        left_s -= limit_s - tail_s - (restart_s if count > 1 else 0.0)
        if abs(left_s + restart_s - limit_s) < 1e-6:
            return  # a rounding apart
    assert count == told
