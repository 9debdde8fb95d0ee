"""The paper's four scenarios, one run of each; a run is given by its seed, and all ways to ask see the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ejbd.studies.speculative.fluid import Fluid, play_fluid
from ejbd.studies.speculative.laws import HOUR, LAWS, Tabulated, longest_of_last, optimal, tabulated, whole, widths
from ejbd.studies.speculative.rounds import Played, StochasticJob, play

PROCESSORS = 100
JOBS = 100
RATE_OF_INTREPID = 0.21
SCENARIO_2 = ("truncnorm:mu=4h,sigma=2h,low=1h,high=8h", "truncnorm:mu=1h,sigma=1h,low=10s,high=4h")
SCENARIO_3 = "truncnorm:mu=8h,sigma=2h,low=1h,high=20h"
APPLICATIONS = {
    "AbOrganSeg": ("truncnorm:mu=20h,sigma=8h,low=11h,high=31h", 10),
    "maCRUISE": ("truncnorm:mu=1.7h,sigma=0.5h,low=1.5h,high=3h", 90),
    "FSL": ("truncnorm:mu=20m,sigma=8m,low=10m,high=35m", 300),
}
"""Table 3."""

Asks = Callable[[Tabulated, np.random.Generator], tuple[float, ...]]


def hpc(law: Tabulated, rng: np.random.Generator) -> tuple[float, ...]:
    return whole(law)


def t_optimal(law: Tabulated, rng: np.random.Generator) -> tuple[float, ...]:
    return optimal(law)


def at_optimal(zeta: float) -> Asks:
    return lambda law, rng: optimal(law, zeta)


def neuroscience(count: int = 10, to_the_bound: bool = False) -> Asks:
    """The longest of the last runs; after a time-out the upper bound, or half as much again."""

    def asks(law: Tabulated, rng: np.random.Generator) -> tuple[float, ...]:
        sequence = longest_of_last(law, rng, count)
        return (sequence[0], law.high) if to_the_bound and len(sequence) > 1 else sequence

    return asks


def _jobs(
    laws: Sequence[Tabulated], wide: Sequence[int], run_s: Sequence[float], asks: Asks, seed: int
) -> list[StochasticJob]:
    rng = np.random.default_rng([seed, 2])
    return [
        StochasticJob(processors, run, asks(law, rng), law)
        for law, processors, run in zip(laws, wide, run_s, strict=True)
    ]


def scenario_1(law_name: str, allocation: str, asks: Asks, seed: int, *, kept: bool = True) -> Played:
    """100 jobs of one law (section 5.3); what is left of a reservation is for no other, since all are large."""
    rng = np.random.default_rng([seed, 1])
    law = tabulated(LAWS[law_name])
    wide = widths(allocation, PROCESSORS, JOBS, rng)
    run_s = [law.draw(rng) for _ in wide]
    return play(_jobs([law] * JOBS, wide, run_s, asks, seed), PROCESSORS, kept=kept, gaps=False)


def scenario_2(small_share: float, asks: Asks, speculative: bool, seed: int, *, kept: bool = True) -> Played:
    """200 jobs, a share of which is short (section 5.4)."""
    rng = np.random.default_rng([seed, 1])
    long, short = tabulated(SCENARIO_2[0]), tabulated(SCENARIO_2[1])
    count = 2 * JOBS
    wide = widths("Beta", PROCESSORS, count, rng)
    laws = [short if at < small_share * count else long for at in range(count)]
    run_s = [law.draw(rng) for law in laws]
    return play(_jobs(laws, wide, run_s, asks, seed), PROCESSORS, speculative=speculative, kept=kept)


def scenario_3(zeta: float, asks: Asks, seed: int) -> Fluid:
    """100 jobs of the whole machine, and a stream of small work that fills what they leave (section 5.5)."""
    rng = np.random.default_rng([seed, 1])
    law = tabulated(SCENARIO_3)
    run_s = [law.draw(rng) for _ in range(JOBS)]
    sequences = [asks(law, rng) for _ in run_s]
    return play_fluid(run_s, sequences, zeta, law.mean / 100.0)


def scenario_4(asks: Asks, speculative: bool, seed: int, *, kept: bool = True) -> Played:
    """Three neuroscience codes, 400 submissions, FSL as the stream that backfills at Intrepid's rate (section 5.6).

    The paper does not print widths: the first two codes have Beta ones, and FSL's follows from the rate.
    """
    rng = np.random.default_rng([seed, 1])
    laws: list[Tabulated] = []
    for words, count in list(APPLICATIONS.values())[:2]:
        laws += [tabulated(words)] * count
    wide = widths("Beta", PROCESSORS, len(laws), rng)
    run_s = [law.draw(rng) for law in laws]
    jobs = _jobs(laws, wide, run_s, asks, seed)
    window_s = sum(width * law.high for width, law in zip(wide, laws, strict=True)) / PROCESSORS
    words, count = APPLICATIONS["FSL"]
    law = tabulated(words)
    width = max(1, round(RATE_OF_INTREPID * PROCESSORS * window_s / (count * law.mean)))
    stream = _jobs([law] * count, [min(width, PROCESSORS)] * count, [law.draw(rng) for _ in range(count)], asks, seed)
    for job, share in zip(stream, sorted(rng.random(count).tolist()), strict=True):
        job.submit_s = share * window_s
    return play(jobs + stream, PROCESSORS, speculative=speculative, kept=kept)


__all__ = ["HOUR", "at_optimal", "hpc", "neuroscience", "scenario_1", "scenario_2", "scenario_3", "scenario_4"]
