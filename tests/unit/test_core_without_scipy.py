"""The daemon alone has no scipy: walltimes are learned from the runs as they were seen, and this is told."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from ejbd.core.speculation import fitting, laws
from ejbd.core.speculation.empirical import Run
from ejbd.manager.facts.past import pastruns


def test_runs_stand_for_themselves_where_no_law_can_be_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    normal = NormalDist()
    times = [math.exp(6.0 + 0.3 * normal.inv_cdf((at + 0.5) / 40)) for at in range(40)]
    runs = [Run(time_s, censored=False, weight=1.0) for time_s in times]
    assert fitting.fit(runs).form != "empirical", "with scipy these runs have a law"
    monkeypatch.setattr(fitting, "has_scipy", lambda: False)
    found = fitting.fit(runs)
    assert (found.form, found.runs) == ("empirical", 40) and found.law.survival(50.0) == 1.0


def test_a_law_that_needs_scipy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "has_scipy", lambda: False)
    assert laws.law_of("exponential:scale=60").survival(0.0) == 1.0
    with pytest.raises(ValueError, match=r"ejb\[sim\]"):
        laws.law_of("beta:alpha=2,beta=3,low=0,high=60")


def test_what_a_user_is_told_names_the_extra() -> None:
    assert "ejb[learned]" in pastruns.UNFITTED
