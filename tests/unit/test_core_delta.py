"""Delta by degree: the paper's one figure, known points, what lies between and beyond, and the form for kernels."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.handlers import plan_wait
from ejbd.core.bundling.parameters import BundlingParameters, rules_of
from ejbd.core.delta import HIGHEST, DeltaByDegree, delta_at, deltas_for_kernels, parse_delta, rate_with
from ejbd.core.progress import rate, rate_by, stretch, stretch_by
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState
from ejbd.sim.settings import parse_setting

MEASURED = DeltaByDegree(((2, 0.8), (4, 1.1), (8, 1.7)))
curves = st.dictionaries(st.integers(2, 80), st.floats(0.5, 3), min_size=1, max_size=5).map(
    lambda found: DeltaByDegree(tuple(found.items()))
)


def test_between_known_degrees_delta_is_a_straight_line_and_beyond_them_it_goes_on_rising() -> None:
    assert [MEASURED.at(k) for k in (1, 2, 4, 8)] == [1.0, 0.8, 1.1, 1.7]
    assert MEASURED.at(3) == pytest.approx(0.95) and MEASURED.at(6) == pytest.approx(1.4)
    assert MEASURED.at(16) == pytest.approx(2.9), "as steeply as from 4 to 8"
    assert MEASURED.at(HIGHEST) == MEASURED.at(1000), "and then no more"
    assert DeltaByDegree(((4, 1.3),)).at(2) == pytest.approx(1.1), "from 1 at degree 1"
    assert DeltaByDegree(((2, 0.8),)).at(8) == 0.8, "what falls does not go on falling"
    assert DeltaByDegree(((100, 2.0),)).at(200) == 2.0


def test_texts() -> None:
    assert parse_delta("2:0.8,4:1.1,8:1.7") == MEASURED == parse_delta("8:1.7/4:1.1/2:0.8")
    assert str(MEASURED) == "2:0.8,4:1.1,8:1.7" and parse_delta(str(MEASURED)) == MEASURED
    assert parse_delta("0.5") == 0.5
    for text in ("2:", "two:1", "1:1.0", "2:1,2:2", "2:0", "2:-1", "2:nan", "2:inf", "2:1,", ":"):
        with pytest.raises(ValueError, match="Delta"):
            parse_delta(text)


@given(curves)
def test_kernels_have_it_at_every_degree(delta: DeltaByDegree) -> None:
    deltas = deltas_for_kernels(delta)
    assert parse_delta(str(delta)).at(5) == pytest.approx(delta.at(5))  # type: ignore[union-attr]
    for k in (1, 2, 3, 7, 64, 80, 200):
        assert stretch_by(k, deltas) == stretch(k, delta.at(k))
        assert 0 < delta.at(k) < math.inf
        assert rate_by(k, 1, deltas) == rate(k, 1, delta.at(k)) == rate_with(k, 1, delta)
    known = [1.0, *(value for _, value in delta.points)]
    assert all(min(known) <= delta.at(k) for k in range(1, 300))
    assert rate_by(4, 0, deltas) == rate_with(4, 0, delta) == 0.0


@given(st.floats(0.01, 100), st.integers(1, 1024))
def test_one_figure_is_that_of_the_paper_at_every_degree(delta: float, k: int) -> None:
    assert stretch_by(k, deltas_for_kernels(delta)) == stretch(k, delta)
    assert delta_at(delta, k) == delta


def test_a_plan_goes_by_the_delta_of_its_degree() -> None:
    state = ElasticState("7", 16, 1000.0)
    slots = (BackfillSlot(4, UNLIMITED),)
    params = BundlingParameters(delta=MEASURED)
    assert plan_wait(state, slots, 0.0, params).expected_completion_s == 4400.0, "1.1 x 4"
    assert plan_wait(state, slots, 0.0, replace(params, delta=1.7)).expected_completion_s == 6800.0
    assert BundlingParameters.from_json(params.to_json()) == params
    assert params.to_json()["delta"] == "2:0.8,4:1.1,8:1.7"
    assert rules_of(params).delta[8] == 1.7


def test_a_setting_of_a_simulation_takes_it_too() -> None:
    setting = parse_setting("ejb:delta=2:0.8,4:1.1,8:1.7,suspend")
    assert setting.parameters.delta == MEASURED and getattr(setting.parameters, "suspend") is True  # noqa: B009
    assert parse_setting("ejb:delta=2:0.8/4:1.1/8:1.7").parameters.delta == MEASURED
    assert parse_setting(setting.name).parameters == setting.parameters
