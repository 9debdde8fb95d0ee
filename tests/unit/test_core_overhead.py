"""What starts and ends cost beside lambda, as a pure function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.cost import RECENT, Source
from ejbd.core.overhead import MOST_PACE, Took, WholeRun, expected, overheads, pace

took = st.lists(st.builds(Took, st.integers(1, 512), st.floats(0, 1e5)), max_size=12)


def test_before_the_first_measurement_there_is_a_prior() -> None:
    found = overheads([], [], [], [], 16, ready_s=15.0, poll_s=5.0)
    assert (found.ready.value, found.launch.value, found.giving_back.value, found.pace.value) == (15.0, 0.0, 5.0, 1.0)
    assert found.start_up_s == 15.0
    assert {one.source for one in (found.launch, found.giving_back, found.pace)} == {Source.GUESSED}
    assert (found.ready.source, found.ready.why) == (Source.CONFIGURED, "configured: 15 s, nothing was measured yet")
    assert found.to_json()["start_up_s"] == 15.0 and found.to_json()["pace"]["source"] == "guessed"


def test_the_median_of_the_newest_few_of_about_the_same_size_counts() -> None:
    near = [Took(16, seconds) for seconds in (3.0, 90.0, 2.0, 4.0, 5.0)]
    found = expected([Took(128, 60.0), *near, Took(16, 1000.0)], 12, 1.0, "")
    assert (found.value, found.source, found.samples) == (4.0, Source.MEASURED, 5)
    assert found.why == "measured 5 times on 16 processors"
    assert expected([Took(128, 60.0), *near], 100, 1.0, "").value == 60.0


@given(took, st.none() | st.integers(1, 512), st.floats(0, 100))
def test_what_is_expected_lies_among_what_was_measured(found: list[Took], size: int | None, prior: float) -> None:
    got = expected(found, size, prior, "prior")
    if not found:
        assert (got.value, got.why, got.samples) == (prior, "prior", 0)
    else:
        assert min(one.seconds for one in found) <= got.value <= max(one.seconds for one in found)
        assert 1 <= got.samples <= RECENT


def test_the_pace_is_what_a_command_takes_with_ejb_beside_what_it_takes_without() -> None:
    rigid = [WholeRun("w", seconds, False) for seconds in (100.0, 400.0, 98.0)]
    found = pace([WholeRun("w", 112.0, True), *rigid])
    assert (found.value, found.source, found.samples) == (1.12, Source.MEASURED, 1)
    assert pace([WholeRun("v", 112.0, True), *rigid]).source is Source.GUESSED, "another command"
    assert pace([WholeRun("w", 112.0, True)]).value == 1.0
    assert pace(rigid).value == 1.0


@pytest.mark.parametrize(("seconds", "value"), [(50.0, 1.0), (5000.0, MOST_PACE)])
def test_a_pace_that_is_not_believed_is_told(seconds: float, value: float) -> None:
    found = pace([WholeRun("w", seconds, True), WholeRun("w", 100.0, False)])
    assert found.value == value and found.why.endswith("is not believed")
