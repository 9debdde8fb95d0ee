"""Delta from what an application achieved, as a pure function."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ejbd.core.cost import RECENT, Source
from ejbd.core.penalty import (
    LEAST,
    LEAST_PART,
    LEAST_RUN_S,
    MOST,
    SHORTEST_S,
    Calibration,
    Ratio,
    Run,
    Speed,
    by_degree,
    calibrations,
    penalty,
    ratios,
)  # fmt: skip
from ejbd.core.progress import stretch

FULL = Speed(job="a", launch=0, work="w", total=1000.0, degree=1, units=100.0, seconds=10.0)
OVER = replace(FULL, degree=4, units=20.0)

units = st.floats(1e-3, 1e9)
seconds = st.floats(SHORTEST_S, 1e6)
degrees = st.integers(2, 64)
speeds = st.lists(
    st.builds(
        Speed,
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.sampled_from("vw"),
        st.sampled_from([None, 10.0, 20.0]),
        st.integers(1, 8),
        st.floats(0, 1e9),
        st.floats(1e-3, 1e6),
    ),
    max_size=12,
)
measurements = st.lists(st.builds(Ratio, degrees, st.floats(1e-6, 1e6), units, units), max_size=12)


def test_ten_a_second_at_full_width_and_two_at_degree_four_is_a_delta_of_one_and_a_quarter() -> None:
    (ratio,) = ratios([FULL, OVER])
    assert (ratio.degree, ratio.delta, ratio.per_s, ratio.full_per_s) == (4, 1.25, 2.0, 10.0)
    found = penalty([ratio], 4, configured=1.0)
    assert (found.delta, found.source, found.samples) == (1.25, Source.MEASURED, 1)
    assert found.why == "measured once at degree 4 by the progress told: 2 a second, 10 at full width"
    assert found.to_json()["source"] == "measured"


@given(st.floats(LEAST, 50.0), degrees, units, seconds, seconds)
def test_an_application_that_obeys_eq_2_gives_its_delta_back(
    delta: float, degree: int, full_per_s: float, full_s: float, over_s: float
) -> None:
    full = replace(FULL, units=full_per_s * full_s, seconds=full_s)
    over = replace(FULL, degree=degree, units=full_per_s / stretch(degree, delta) * over_s, seconds=over_s)
    (ratio,) = ratios([over, full])
    assert ratio.delta == pytest.approx(delta)
    assert penalty([ratio], degree, configured=7.0).delta == pytest.approx(delta, abs=0.006)


@given(speeds)
def test_only_the_same_work_is_set_beside_each_other(found: list[Speed]) -> None:
    got = ratios(found)
    over = [one for one in found if one.degree > 1 and one.tells]
    assert len(got) <= len(over)
    for one in over:
        full = [other for other in found if other.degree == 1 and other.tells]
        same = [o for o in full if (o.launch, o.total) == (one.launch, one.total)]
        beside = [o for o in same if o.job == one.job or (o.work == one.work and one.total is not None)]
        assert bool(beside) == bool(ratios([one, *full]))
    for ratio in got:
        assert ratio.degree > 1 and ratio.delta > 0
        assert ratio.delta == pytest.approx(ratio.full_per_s / (ratio.degree * ratio.per_s))


def test_a_jobs_own_speed_goes_before_that_of_others() -> None:
    other = replace(FULL, job="b", units=160.0)
    assert ratios([OVER, other, FULL])[0].delta == 1.25
    assert ratios([OVER, other])[0].delta == 2.0, "the same command with the same end"
    for strange in ({"work": "v"}, {"total": 2000.0}, {"total": None}, {"launch": 1}):
        assert ratios([OVER, replace(other, **strange)]) == [], strange
    assert ratios([replace(OVER, total=None), replace(other, total=None)]) == [], "nobody knows where it was to end"
    assert ratios([replace(OVER, total=None), replace(FULL, total=None)])[0].delta == 1.25, "one launch is one work"


def test_what_says_too_little_is_left_out() -> None:
    assert ratios([FULL]) == ratios([OVER]) == ratios([]) == []
    for short in (replace(OVER, seconds=SHORTEST_S / 2), replace(OVER, units=0.0), replace(OVER, units=5e-324)):
        assert ratios([short, FULL]) == []
    assert ratios([OVER, replace(FULL, seconds=SHORTEST_S / 2)]) == []


def test_one_odd_stretch_at_full_width_does_not_count() -> None:
    assert ratios([OVER, FULL, replace(FULL, units=1.0), FULL])[0].delta == 1.25


@given(measurements, st.none() | st.integers(1, 64), st.floats(1, 100), st.none() | st.floats(1, 100))
def test_whatever_was_measured_over_subscription_is_never_planned_as_faster(
    found: list[Ratio], degree: int | None, configured: float, told: float | None
) -> None:
    got = penalty(found, degree, configured=configured, told=told)
    assert all(stretch(k, got.delta) >= 1.0 for k in range(1, 65))
    if told is not None:
        assert (got.delta, got.source) == (told, Source.JOB)
    elif not found:
        assert (got.delta, got.source, got.samples) == (configured, Source.CONFIGURED, 0)
    else:
        assert got.source is Source.MEASURED and LEAST <= got.delta <= MOST and 1 <= got.samples <= RECENT
        low, high = (round(min(MOST, max(LEAST, f(r.delta for r in found))), 2) for f in (min, max))
        assert low <= got.delta <= high


def test_the_nearest_degree_counts_and_of_it_the_newest_few() -> None:
    near = [Ratio(4, delta, 1.0, 1.0) for delta in (1.3, 9.0, 1.2, 1.1, 1.4)]
    far = [Ratio(16, 3.0, 1.0, 1.0)]
    assert penalty([*far, *near, Ratio(4, 50.0, 1.0, 1.0)], 5, configured=1.0).delta == 1.3
    assert penalty([*far, *near], 30, configured=1.0).delta == 3.0
    found = penalty([*far, *near], None, configured=1.0)
    assert (found.delta, found.samples) == (1.3, 5)
    assert found.why.startswith("measured 5 times at degree 4 to 16 by the progress told: 1 a second at degree 4, ")


ALL_FULL = Run("w", 400.0, {})


def test_two_runs_of_which_one_was_over_subscribed_tell_delta() -> None:
    """Of 400 s of work 200 s were done at full width, the rest by 1000 s at degree 4: 200 = 1000 / (4 * 1.25)."""
    (found,) = calibrations([Run("w", 200.0, {4: 1000.0}), ALL_FULL])
    assert found == Calibration(degree=4, delta=1.25, over_s=1000.0, work_s=200.0, full_s=400.0)
    got = penalty([], 4, calibrated=[found], configured=1.0)
    assert (got.delta, got.source, got.samples) == (1.25, Source.CALIBRATED, 1)
    assert got.why == (
        "calibrated once at degree 4: 200 of the 400 s that the same command computes at full width took 1e+03 s"
    )
    assert penalty([Ratio(4, 2.0, 1.0, 8.0)], 4, calibrated=[found], configured=1.0).source is Source.MEASURED


@given(
    st.floats(LEAST, 50.0),
    st.floats(300.0, 1e6),
    st.lists(st.tuples(degrees, st.floats(0.1, 1.0)), min_size=1, max_size=4, unique_by=lambda part: part[0]),
    st.floats(0.3, 1.0),
)
def test_runs_that_obey_eq_2_give_their_delta_back(
    delta: float, full_s: float, parts: list[tuple[int, float]], share: float
) -> None:
    """However the work that was done over-subscribed is divided among degrees."""
    weights = sum(weight for _, weight in parts)
    over = {k: share * full_s * weight / weights * stretch(k, delta) for k, weight in parts}
    (found,) = calibrations([Run("w", full_s, {}), Run("w", (1 - share) * full_s, over)])
    assert found.delta == pytest.approx(delta, rel=1e-6)
    assert max(over, key=lambda k: over[k] / k) == found.degree


def test_a_run_that_was_hardly_over_subscribed_tells_nothing() -> None:
    over = {4: 1000.0}
    assert calibrations([ALL_FULL]) == calibrations([Run("w", 200.0, over)]) == []
    assert calibrations([Run("v", 200.0, over), ALL_FULL]) == [], "another command"
    assert calibrations([Run("w", 400.0 * (1 - LEAST_PART) + 1, over), ALL_FULL]) == []
    assert calibrations([Run("w", 500.0, over), ALL_FULL]) == [], "slower than the one at full width all the same"
    short = Run("w", 100.0, {})
    assert calibrations([Run("w", 100.0 - LEAST_RUN_S + 1, over), short]) == []
    assert len(calibrations([Run("w", 100.0 - LEAST_RUN_S - 1, over), short])) == 1


def test_what_is_not_believed_is_told() -> None:
    assert penalty([Ratio(4, 0.25, 10.0, 10.0)], 4, configured=1.0).delta == 0.5
    assert penalty([Ratio(4, 0.25, 10.0, 10.0)], 4, configured=1.0).why.endswith("; 0.25 is not believed")
    assert penalty([Ratio(4, 1e3, 1.0, 10.0)], 4, configured=1.0).delta == MOST


def test_the_job_before_the_measurements_before_the_queue() -> None:
    one = [Ratio(4, 1.25, 2.0, 10.0)]
    assert penalty([], 4, configured=1.5).why == "configured: 1.5, nothing was measured yet"
    assert penalty(one, 4, configured=1.5).delta == 1.25
    assert penalty(one, 4, configured=1.5, told=2.0).why == "the job says 2"


def test_each_degree_that_was_measured_has_a_delta_of_its_own() -> None:
    slow = Calibration(degree=8, delta=1.7, over_s=800.0, work_s=200.0, full_s=400.0)
    calibrated = [slow, replace(slow, degree=4, delta=3.0)]
    found = by_degree([Ratio(4, 1.3, 1.0, 5.0), Ratio(2, 1.0, 1.0, 2.0), Ratio(4, 1.1, 1.0, 4.0)], calibrated)
    assert [(one.degree, one.penalty.delta, one.penalty.source) for one in found] == [
        (2, 1.0, Source.MEASURED),
        (4, 1.1, Source.MEASURED),
        (8, 1.7, Source.CALIBRATED),
    ]
    assert found[1].to_json() == {"degree": 4, **found[1].penalty.to_json()} and found[1].penalty.samples == 2
    assert by_degree([], []) == ()


@given(measurements)
@example([Ratio(3, 4.3984375, 1.0, 1.0), Ratio(4, 1.0, 1.0, 1.0)])
def test_a_higher_degree_is_never_taken_for_faster_than_a_lower_one(found: list[Ratio]) -> None:
    got = by_degree(found, [])
    assert [one.degree for one in got] == sorted({one.degree for one in found})
    stretches = [stretch(one.degree, one.penalty.delta) for one in got]
    assert stretches == sorted(stretches) and all(one >= 1.0 for one in stretches)
