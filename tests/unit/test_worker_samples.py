"""What a worker tells of the obstacles that it sees in running ranks: what lasts, and that it is gone."""

from __future__ import annotations

from workers.ejb_worker.watching import LONGEST_PAUSE_S, Samples

WHY = "rank 0 has a temporary file that never had a name"


def test_a_temporary_file_that_is_open_for_a_moment_is_not_told() -> None:
    """It kept an application from being moved for a week."""
    samples = Samples(1, None)
    assert samples.take(1000) is not None, "how much memory there is"
    assert samples.take(1000, WHY) is None
    assert samples.pause_s <= 1.0, "it is looked at again soon"
    assert samples.take(1000) is None


def test_what_is_seen_twice_in_a_row_is_told_once_and_so_is_that_it_is_gone() -> None:
    samples = Samples(1, None)
    samples.take(1000)
    told = [samples.take(1000, why) for why in (WHY, WHY, WHY, "", "", "")]
    assert [one and (one["obstacle"], one.get("passed", False)) for one in told] == [
        None, (WHY, False), None, None, ("", True), None,
    ]  # fmt: skip


def test_an_obstacle_that_comes_and_goes_stays_told() -> None:
    samples = Samples(1, None)
    samples.take(1000)
    told = [samples.take(1000, why) for why in (WHY, WHY, "", WHY, "", WHY, WHY)]
    assert [one is not None for one in told] == [False, True, False, False, False, False, False]
    assert samples.take(5000, WHY) is not None and samples.take(9000, "") is not None


def test_what_stood_in_the_way_of_a_checkpoint_is_told_as_gone_later() -> None:
    samples = Samples(1, None)
    assert samples.with_obstacle(WHY)["obstacle"] == WHY
    found = [samples.take(0) for _ in range(3)]
    assert [one is not None and one.get("passed", False) for one in found] == [False, True, False]


def test_looks_become_rarer_whatever_is_seen() -> None:
    samples = Samples(1, None)
    pauses = []
    for number in range(40):
        samples.take(1000, WHY if number % 4 < 2 else "")
        pauses.append(samples.pause_s)
    assert max(pauses) == LONGEST_PAUSE_S
