"""By which run time a decision is weighed, where earlier runs of the application have told something of it.

What a job holds has to last for as long as it may run: by its request, or by a time that nearly all runs kept to.
Whether a move is worth its lambda is another question, to which the time that the job *will* run is the answer. Of a
law only a few points are wanted here, run times that are all as probable.
"""

from __future__ import annotations

from collections.abc import Callable

from ejbd.core.kernel import Floats, kernel

POINTS = 20
AT = tuple((index + 0.5) / POINTS for index in range(POINTS))  # which quantiles of a law its points are
BY_MEAN = -1.0  # a share: the mean counts, not a quantile
SHARE = 0.05
"""Of the runs that got as far as a job, so many were over by the time that its moves are weighed by: it halves the
overhead of the paper's algorithm on four logs (docs/speculation.md)."""


def points_of(quantile: Callable[[float], float]) -> list[float]:
    """The points of a law, by its quantiles (seconds)."""
    return [quantile(share) for share in AT]


@kernel
def weighed_left(points: Floats, work_s: float, left_s: float, share: float) -> float:
    """Full-speed seconds that a job is thought to have left once it has done `work_s`; at most `left_s`.

    Of the runs that got so far, this share had no more left; by their mean where the share is negative. `points` grow;
    where the job has outlived them all, or there is none, it is `left_s`.
    """
    first = 0
    while first < len(points) and points[first] <= work_s:
        first += 1
    longer = len(points) - first
    if longer == 0:
        return left_s
    if share >= 0.0:
        return min(left_s, points[first + min(longer - 1, int(share * longer))] - work_s)
    expected = 0.0
    for index in range(first, len(points)):
        expected += points[index] - work_s
    return min(left_s, expected / longer)
