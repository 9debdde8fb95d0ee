"""How long the work of a cluster lasts: the mean run time of what has ended lately, weighed by processor-seconds.

That is for how long a processor that is busy will be, which is what room is worth to those that wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ejbd.core.kernel import kernel

FEWEST_RUNS = 20  # that have to have ended
KEEPS = 0.99  # of what was known, at each further run: about the last hundred count


@kernel
def noted(work: float, squares: float, processors: int, run_s: float) -> tuple[float, float]:
    """One more run is over: the sums of processor-seconds, and of those times the run time, without the oldest."""
    more = processors * max(1.0, run_s)
    return work * KEEPS + more, squares * KEEPS + more * max(1.0, run_s)


def lasting_s(runs: Iterable[tuple[int, float]]) -> float:
    """Of runs, (processors, seconds at full width) in the order of their ends; 0 where there are too few to tell."""
    work = squares = 0.0
    count = 0
    for processors, run_s in runs:
        work, squares = noted(work, squares, processors, run_s)
        count += 1
    return squares / work if count >= FEWEST_RUNS else 0.0
