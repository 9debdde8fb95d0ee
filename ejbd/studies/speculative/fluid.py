"""Jobs of the whole machine one after the other, and small work as a fluid (section 3.1) that fills what they leave.

While a run goes on, small work gathers at the rate `zeta` of the machine; what a reservation leaves behind a run's end
is for it, until the next reservation begins. What is left at the end is done then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fluid:
    """`utilisation`; `response_s` of the large jobs, by the ends of their reservations; `all_response_s`: of the small
    ones, too, that are taken to be as many as `small_s` makes them."""

    utilisation: float
    response_s: float
    all_response_s: float


def play_fluid(run_s: Sequence[float], sequences: Sequence[tuple[float, ...]], zeta: float, small_s: float) -> Fluid:
    """Rounds of reservations, of each the longest first. Work is in seconds of the whole machine."""
    now = backlog = waited = 0.0
    left = list(range(len(run_s)))
    ends: list[float] = []
    done = 0
    while left:
        failed = []
        for job in sorted(left, key=lambda j: (-sequences[j][min(done, len(sequences[j]) - 1)], j)):
            asked = sequences[job][min(done, len(sequences[job]) - 1)]
            used = min(run_s[job], asked)
            waited += backlog * used + zeta * used * used / 2.0
            backlog += zeta * used
            gap = asked - used
            if gap > 0.0:  # the backlog falls at 1 - zeta while there is some
                busy = min(gap, backlog / (1.0 - zeta))
                waited += backlog * busy - (1.0 - zeta) * busy * busy / 2.0
                backlog = max(0.0, backlog - (1.0 - zeta) * busy)
            now += asked
            if run_s[job] <= asked:
                ends.append(now)
            else:
                failed.append(job)
        left = failed
        done += 1
    small = zeta * now
    waited += backlog * backlog / 2.0
    makespan = now + backlog
    count = small / (small_s / 100.0) if small else 0.0  # small jobs of one processor of a hundred
    response = sum(ends) / len(ends)
    small_response = waited / small + small_s if small else 0.0
    whole = (sum(ends) + count * small_response) / (len(ends) + count)
    return Fluid((sum(run_s) + small) / makespan, response, whole)
