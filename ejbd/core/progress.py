"""How fast an over-subscribed application proceeds (Liu & Weissman, SC'15, section 2.2, Eq. 1 to 3).

`processes` is P, `processors` is q, `delta` is the penalty factor of Eq. 2. Work is counted in seconds at full speed:
an application of requested walltime R is done when its work is R. Delta applies to over-subscription only: with a
processor for every process the rate is 1 whatever Delta.
"""

from __future__ import annotations

import math

from ejbd.core.kernel import Floats, kernel

ROUNDING_SLACK_S = 1e-6  # sums of float seconds may come out a hair above the whole second that they mean


@kernel
def round_up(seconds: float, quantum_s: float = 1.0) -> float:
    """The least whole multiple of `quantum_s` that is not below `seconds` by more than a rounding error."""
    if math.isinf(seconds):
        return seconds
    return math.ceil((seconds - ROUNDING_SLACK_S) / quantum_s) * quantum_s


@kernel
def degree(processes: int, processors: int) -> int:
    """Processes that the busiest processor time-shares: ceil(P/q). `processors` is at least 1."""
    return -(-processes // processors)


@kernel
def fewest(processes: int, degree: int) -> int:
    """The fewest processors that give this degree of over-subscription: ceil(P/d)."""
    return -(-processes // degree)


@kernel
def whole_units(processors: int, unit: int) -> int:
    """`processors` rounded up to whole units: nodes, where those are given out or reserved as a whole."""
    return -(-processors // unit) * unit


@kernel
def stretch(degree: int, delta: float) -> float:
    """How many seconds one second of full-speed work takes at this degree (Eq. 2): 1, or Delta times the degree."""
    return 1.0 if degree <= 1 else delta * degree


@kernel
def rate(processes: int, processors: int, delta: float) -> float:
    """Work per second on that many processors: 1 for one process a processor, 1/(Delta*d) otherwise, 0 on none."""
    return 1.0 / stretch(degree(processes, processors), delta) if processors > 0 else 0.0


@kernel
def stretch_by(degree: int, deltas: Floats) -> float:
    """The same with a Delta for each degree (and a pace at degree 1), as :func:`ejbd.core.delta.deltas_for_kernels`
    makes them."""
    return deltas[min(degree, len(deltas) - 1)] * degree


@kernel
def rate_by(processes: int, processors: int, deltas: Floats) -> float:
    """Work per second with a Delta for each degree; 0 on no processor."""
    return 1.0 / stretch_by(degree(processes, processors), deltas) if processors > 0 else 0.0
