"""Sequences of walltimes: the papers' values, brute force over all, and laws fitted to samples of known ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.core.speculation import fitting
from ejbd.core.speculation.backfill import Candidate, choose, expected_utilisation
from ejbd.core.speculation.checkpointed import Prices, checkpointed, checkpointed_plan_of
from ejbd.core.speculation.discrete import Array, Discrete, discretise
from ejbd.core.speculation.empirical import Run, empirical
from ejbd.core.speculation.fitting import fit
from ejbd.core.speculation.laws import FORMS, Law, law_of
from ejbd.core.speculation.sequence import (
    at_optimal,
    expected_request,
    finishing,
    plan_of,
    t_optimal,
)
from ejbd.studies.speculative.fewruns import ODD, costs_of
from tests.nightly import examples

HOUR = 3600.0
TABLE_1 = law_of("truncnorm:mu=8h,sigma=2h,low=0h,high=20h")
LAWS = {
    "truncnorm": "truncnorm:mu=8h,sigma=2h,low=0h,high=20h",
    "truncnorm from 6": "truncnorm:mu=8h,sigma=2h,low=6h,high=16h",
    "exponential": "exponential:scale=1h,high=16h",
    "pareto": "pareto:alpha=2.1,low=1h,high=20h",
    "beta": "beta:alpha=2,beta=2,low=0,high=1h",
    "lognormal": "lognormal:mu=8,sigma=0.5,high=12h",
    "weibull": "weibull:shape=1.5,scale=2h,high=20h",
}


# -- golden values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zeta", "points", "sequence_h", "cost_h"),
    [
        (0.0, 200, (10.8, 13.4, 15.4, 17.1, 18.7, 20.0), 11.937461),
        (0.1, 46, (10.8696, 13.9130, 18.6957, 20.0), 12.089411),
        (0.5, 46, (13.0435, 20.0), 17.026639),
        (0.9, 46, (17.3913, 20.0), 82.179316),
    ],
)
def test_the_sequences_of_table_1(zeta: float, points: int, sequence_h: tuple[float, ...], cost_h: float) -> None:
    plan = plan_of(TABLE_1, points=points, zeta=zeta)
    assert [time / HOUR for time in plan.sequence_s] == pytest.approx(sequence_h, abs=5e-5)
    assert plan.expected_cost_s / HOUR == pytest.approx(cost_h, abs=5e-7)


def test_the_sequence_with_checkpoints() -> None:
    plan = checkpointed_plan_of(TABLE_1, points=100, checkpoint_s=0.15 * HOUR, restart_s=0.15 * HOUR)
    assert plan.expected_cost_s / HOUR == pytest.approx(9.40787, abs=5e-6)
    progress = [one.until_s / HOUR for one in plan.reservations[:4]]
    assert [later - before for before, later in pairwise((0.0, *progress))] == pytest.approx((6.8, 1.4, 1.0, 0.8))
    assert plan.sequence_s[0] / HOUR == pytest.approx(6.8 + 0.15)
    assert plan.sequence_s[1] / HOUR == pytest.approx(1.4 + 0.15 + 0.15)


@pytest.mark.parametrize(
    ("law", "sequence_h", "cost_h"),
    [
        ("truncnorm:mu=20h,sigma=8h,low=11h,high=31h", (29.3, 31), 30.798),
        ("truncnorm:mu=1.7h,sigma=0.5h,low=1.5h,high=3h", (2.505, 3), 2.731),
        ("truncnorm:mu=20m,sigma=8m,low=10m,high=35m", (29.5 / 60, 35 / 60), 33.03 / 60),
        ("truncnorm:mu=8h,sigma=2h,low=6h,high=16h", (11.05, 13.6, 15.55, 16), 12.126),
    ],
)
def test_the_sequences_of_the_scenarios(law: str, sequence_h: tuple[float, ...], cost_h: float) -> None:
    plan = plan_of(law_of(law))
    assert [time / HOUR for time in plan.sequence_s] == pytest.approx(sequence_h, abs=1e-6)
    assert plan.expected_cost_s / HOUR == pytest.approx(cost_h, rel=2e-4)


# -- brute force ------------------------------------------------------------------------------------------------------


def every_sequence(n: int) -> Iterator[tuple[int, ...]]:
    for size in range(n):
        for chosen in combinations(range(1, n), size):
            yield (*chosen, n)


def cost_of(table: Discrete, indices: tuple[int, ...], zeta: float) -> float:
    """The mean of T = max(W + v_j, (W + X)/(1 - zeta)), run time by run time."""
    cost = 0.0
    for index, share in enumerate(table.shares.tolist()):
        wasted = 0.0
        for j in indices:
            if index <= j:
                whole = max(wasted + table.values[j], (wasted + table.values[index]) / (1.0 - zeta))
                cost += share * whole
                break
            wasted += table.values[j]
    return cost


@st.composite
def tables(draw: st.DrawFn, most: int = 8) -> Discrete:
    weights = draw(st.lists(st.integers(0, 20), min_size=2, max_size=most).filter(sum))
    shares: Array = np.array([0.0, *weights]) / sum(weights)
    low, step = draw(st.sampled_from([0.0, 0.5, 2.0])), draw(st.sampled_from([0.25, 1.0]))
    values: Array = low + step * np.arange(shares.shape[0], dtype=np.float64)
    return Discrete(low, step, values, shares, np.maximum(0.0, 1.0 - np.cumsum(shares)))


@settings(max_examples=examples(60), deadline=None)
@given(tables(), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9]))
def test_no_sequence_is_cheaper(table: Discrete, zeta: float) -> None:
    found = at_optimal(table, zeta)
    costs = {indices: cost_of(table, indices, zeta) for indices in every_sequence(table.points)}
    assert found.cost == pytest.approx(min(costs.values()), rel=1e-9)
    assert costs[found.indices] == pytest.approx(found.cost, rel=1e-9)
    if zeta == 0.0:
        assert t_optimal(table).cost == pytest.approx(found.cost, rel=1e-9)


def cost_with_checkpoints(
    table: Discrete, steps: tuple[tuple[int, bool], ...], checkpoint: float, restart: float, prices: Prices
) -> float:
    cost = 0.0
    for index, share in enumerate(table.shares.tolist()):
        if not share:
            continue
        done, resume = 0.0, 0.0
        for j, saves in steps:
            asked = resume + table.values[j] - done + (checkpoint if saves else 0.0)
            finishes = index <= j
            used = resume + (table.values[index] - done if finishes else asked - resume)
            cost += share * (prices.alpha * asked + prices.beta * used + prices.gamma)
            if finishes:
                break
            if saves:
                done, resume = float(table.values[j]), restart
    return cost


@settings(max_examples=25, deadline=None)
@given(
    tables(5), st.sampled_from([0.0, 0.1, 0.6]), st.sampled_from([0.0, 0.3]),
    st.sampled_from([Prices(), Prices(0.5, 1.0, 0.2), Prices(1.0, 0.3, 1.0)]),
)  # fmt: skip
def test_no_sequence_with_checkpoints_is_cheaper(
    table: Discrete, checkpoint: float, restart: float, prices: Prices
) -> None:
    found = checkpointed(table, checkpoint, restart, prices)
    costs = []
    for indices in every_sequence(table.points):
        for mask in range(2 ** (len(indices) - 1)):
            steps = tuple((j, bool(mask >> at & 1)) for at, j in enumerate(indices))
            costs.append(cost_with_checkpoints(table, steps, checkpoint, restart, prices))
    assert found.expected_cost_s == pytest.approx(min(costs), rel=1e-9)


def test_a_limit_holds_for_every_reservation_with_checkpoints() -> None:
    plan = checkpointed_plan_of(TABLE_1, checkpoint_s=540, restart_s=540, limit_s=4 * HOUR)
    assert max(plan.sequence_s) <= 4 * HOUR
    assert plan.reservations[-1].until_s == pytest.approx(20 * HOUR)
    with pytest.raises(ValueError, match="no reservation makes progress"):
        checkpointed_plan_of(TABLE_1, checkpoint_s=540, restart_s=540, limit_s=600)


# -- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", LAWS.values(), ids=LAWS)
def test_a_law_is_one(words: str) -> None:
    law = law_of(words)
    times = np.linspace(law.low, law.high, 101).tolist()
    left = [law.survival(time) for time in times]
    assert left[0] == 1.0 and left[-1] == pytest.approx(0.0, abs=1e-12)
    assert all(later <= before for before, later in pairwise(left))
    assert law.survival(law.quantile(0.3)) == pytest.approx(0.7, abs=1e-6)
    table = discretise(law, 4000)
    assert law.mean == pytest.approx(float(np.dot(table.values, table.shares)), rel=2e-3)
    assert law_of(law.words()) == law


def test_the_forms_that_are_offered_are_those_that_are_tried() -> None:
    assert {words.partition(":")[0] for words in LAWS.values()} == set(FORMS)


@pytest.mark.parametrize(
    "words",
    [
        "gamma:a=1", "truncnorm:mu=8h", "truncnorm:mu=8h,sigma=-2h", "truncnorm:mu=8x,sigma=2h", "truncnorm:mu",
        "truncnorm:mu=1,sigma=1,low=5,high=4", "pareto:alpha=2,low=0,high=3", "truncnorm:mu=1,mu=2,sigma=1",
        "beta:alpha=nan,beta=2,low=0,high=1", "exponential:scale=0", "weibull:shape=1,scale=1,low=-1", "",
        "exponential:scale=inf", "exponential:scale=1,high=nan", "exponential:scale=1e12h",
    ],
)  # fmt: skip
def test_words_that_are_no_law_are_refused_in_a_sentence(words: str) -> None:
    with pytest.raises(ValueError, match=" "):
        law_of(words)


def samples(law: Law, count: int, seed: int) -> list[Run]:
    drawn = np.random.default_rng(seed).random(count)
    return [Run(law.quantile(float(share))) for share in drawn]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("words", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize(("count", "seeds", "bound"), [(10, 20, 0.15), (100, 10, 0.05), (1000, 2, 0.02)])
def test_what_was_learned_from_samples_costs_little_more_than_what_is_known(
    words: str, count: int, seeds: int, bound: float
) -> None:
    """The mean over the seeds of what the sequence costs under the true law, beyond the optimum."""
    law = law_of(words)
    best = expected_request(law, plan_of(law, points=400).sequence_s)
    costs = []
    for seed in range(seeds):
        learned = plan_of(fit(samples(law, count, seed)).law, limit_s=law.high)
        assert learned.sequence_s[-1] == law.high
        costs.append(expected_request(law, learned.sequence_s) / best - 1.0)
    assert min(costs) > -1e-3
    assert sum(costs) / len(costs) < bound


def test_runs_that_timed_out_are_runs_of_at_least_that_length() -> None:
    law = law_of("weibull:shape=2,scale=100")
    runs = samples(law, 400, 1)
    cut = [Run(min(run.time_s, 90.0), run.time_s > 90.0) for run in runs]
    kept = [run for run in cut if not run.censored]
    assert fit(cut).law.mean == pytest.approx(law.mean, rel=0.1)
    assert fit(kept).law.mean < 0.75 * law.mean
    assert empirical(cut).survival(80.0) == pytest.approx(law.survival(80.0), abs=0.06)


@pytest.mark.parametrize("few", [[600.0 + at for at in range(5)], [10.0, 20.0, 40.0]], ids=["clusters", "early ends"])
def test_ten_runs_show_that_they_fit_no_form(few: list[float]) -> None:
    """Two lengths, and early failures: a form between them asked for twice as much as what was seen."""
    runs = few + [6000.0 + 100 * at for at in range(10 - len(few))]
    found = fit([Run(time) for time in runs])
    assert found.form == "empirical"
    assert plan_of(found.law, limit_s=20_000.0).sequence_s[0] < 1500.0


@pytest.mark.parametrize("kind", ODD)
def test_ten_runs_that_fit_no_form_cost_little_more_than_the_best(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over the seeds; 2.4 and 1.7 were seen where the misfit of so few went unnoticed."""
    assert sum(costs_of(kind, seeds=10)) / 10 < 1.3
    monkeypatch.setattr(fitting, "_MISFIT", math.inf)
    assert sum(costs_of(kind, seeds=4)) / 4 > 1.5


def test_what_fits_no_form_is_taken_as_it_was_seen() -> None:
    rng = np.random.default_rng(3)
    runs = [Run(float(time)) for time in (*rng.normal(100, 2, 100), *rng.normal(900, 10, 100))]
    found = fit(runs)
    assert found.form == "empirical"
    first = plan_of(found.law, limit_s=2000.0).sequence_s[0]
    assert 100 < first < 150


def test_one_value_only_and_none_that_ended() -> None:
    found = fit([Run(60.0)] * 20)
    assert found.form == "empirical"
    plan = plan_of(found.law, limit_s=3600.0)
    assert 60.0 <= plan.sequence_s[0] < 66.0 and plan.sequence_s[-1] == 3600.0
    with pytest.raises(ValueError, match="own end"):
        fit([Run(60.0, censored=True)] * 20)
    with pytest.raises(ValueError, match="above 0"):
        fit([Run(0.0)])


def test_the_limit_is_the_last_request() -> None:
    law = law_of("exponential:scale=1h")
    assert plan_of(law, limit_s=2 * HOUR).sequence_s[-1] == 2 * HOUR
    assert max(plan_of(law, limit_s=HOUR / 2).sequence_s) == HOUR / 2
    assert plan_of(law, limit_s=100 * HOUR).sequence_s[-1] == 100 * HOUR
    assert plan_of(TABLE_1, limit_s=100 * HOUR) == plan_of(TABLE_1)
    assert plan_of(law_of("truncnorm:mu=8h,sigma=2h,low=6h,high=16h"), limit_s=HOUR).sequence_s == (HOUR,)


def test_the_chance_of_each_reservation() -> None:
    law = law_of("exponential:scale=100")
    assert finishing(law, (100.0, 200.0)) == pytest.approx((1 - math.exp(-1), 1 - math.exp(-1)))


# -- gaps -------------------------------------------------------------------------------------------------------------


def test_a_gap_goes_to_the_job_that_makes_the_most_of_it() -> None:
    short = law_of("truncnorm:mu=1h,sigma=0.2h,low=0.1h,high=2h")
    long = law_of("truncnorm:mu=8h,sigma=2h,low=0h,high=20h")
    jobs = [
        Candidate("too wide", 9, short),
        Candidate("long", 8, long),
        Candidate("narrow", 1, short),
        Candidate("short", 6, short),
        Candidate("tried", 8, short, tried_s=2 * HOUR),
    ]
    found = choose(jobs, 8, 2 * HOUR)
    assert found is not None and found.job == "short"
    assert found.finishes == pytest.approx(1.0)
    assert found.utilisation == pytest.approx(6 * short.mean / (8 * 2 * HOUR), rel=1e-4)
    assert choose([jobs[0], jobs[4]], 8, 2 * HOUR) is None


def test_what_failed_before_is_known_of_a_candidate() -> None:
    law = law_of("exponential:scale=100")
    fresh = expected_utilisation(Candidate("a", 4, law), 4, 150.0)
    tried = expected_utilisation(Candidate("a", 4, law, tried_s=100.0), 4, 150.0)
    assert tried.finishes == pytest.approx(1 - math.exp(-0.5))
    assert fresh.finishes == pytest.approx(1 - math.exp(-1.5))
