"""Who is sent into a window that is shorter than his request, and who is not."""

from __future__ import annotations

from dataclasses import replace

from ejbd.core.speculation.sending import Known, Sent, Waiter, chance_of, sent

RUNS = tuple(range(100, 1100, 100))  # ten runs of 100 to 1000 s
ALIKE = Known("runs alike", RUNS)
ONE = Waiter("one", 4, 5000.0, (ALIKE,))


def went(*waiters: Waiter, room: int = 8, seconds: float = 800.0) -> list[tuple[str, float]]:
    return [(one.job, one.window_s) for one in sent(waiters, [(room, seconds)])]


def test_eight_of_ten_runs_have_to_be_over_by_the_end_of_the_window() -> None:
    assert went(ONE, seconds=800) == [("one", 800)]
    assert went(ONE, seconds=799) == []
    assert went(replace(ONE, keeps=True), seconds=500) == [("one", 500)], "half of them where the work is kept"
    assert went(replace(ONE, keeps=True), seconds=499) == []


def test_a_job_whose_request_fits_is_the_batch_systems_to_start() -> None:
    assert went(replace(ONE, request_s=800.0)) == []
    assert went(replace(ONE, request_s=801.0)) == [("one", 800)]


def test_several_are_sent_at_once_in_the_order_of_the_queue_as_long_as_there_is_room() -> None:
    many = [replace(ONE, job=name, processors=processors) for name, processors in (("a", 5), ("b", 4), ("c", 3))]
    assert went(*many) == [("a", 800), ("c", 800)]


def test_each_takes_the_longest_window_that_has_room_and_takes_it_from_the_shorter_ones_too() -> None:
    windows = [(4, 1000.0), (8, 800.0)]
    many = [replace(ONE, job=name) for name in ("a", "b", "c")]
    assert [(one.job, one.window_s) for one in sent(many, windows)] == [("a", 1000.0), ("b", 800.0)]


def test_a_window_after_one_that_was_not_enough_is_more_than_twice_as_long_and_the_fourth_is_none() -> None:
    tried = replace(ONE, tried_s=400.0, tries=1)
    assert went(tried, seconds=800) == []
    assert went(tried, seconds=900) == [("one", 900)], "5 of the 6 that were longer than 400 s"
    assert went(replace(tried, tries=3), seconds=900) == []


def test_of_runs_that_were_over_in_the_last_window_nothing_is_told() -> None:
    assert chance_of(replace(ONE, tried_s=400.0), 900.0) == (5 / 6, ALIKE)
    assert chance_of(replace(ONE, tried_s=1000.0), 4000.0) == (0.0, ALIKE), "none was as long as this one is"


def test_the_nearest_class_of_ten_runs_counts_and_shares_are_of_the_request() -> None:
    few, shares = Known("runs alike", RUNS[:9]), Known("runs of the user", [0.1] * 8 + [0.9] * 2, 5000.0)
    one = replace(ONE, known=(few, shares, ALIKE))
    assert chance_of(one, 500.0) == (0.8, shares)
    assert chance_of(one, 499.0) == (0.0, shares)
    assert chance_of(replace(one, known=(few,)), 500.0) == (0.0, None)
    assert went(replace(one, known=(few,)), seconds=1000) == [], "of fewer nothing is known"


def test_why_it_was_sent_is_told_in_a_sentence() -> None:
    (one,) = sent([ONE], [(4, 800.0)])
    assert one == Sent("one", 4, 800.0, 0.8, ALIKE)
    assert one.reason == "80% of 10 runs alike were over within 800 s"
