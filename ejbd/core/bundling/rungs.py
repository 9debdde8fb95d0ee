"""A job's rungs as kernels: 1, 2, ... in the order of falling width, from the width that was asked for on.

What is beyond that width has the rungs 0, -1, ..., the widest the lowest. Eq. 2 of Liu & Weissman (SC'15) is one
such table, of which a rung is a degree of over-subscription, ceil(P/q).
"""

from __future__ import annotations

import math

from ejbd.core.bundling.parameters import BY_LAW, BY_TABLE, OVER_SUBSCRIBED, Rules
from ejbd.core.kernel import kernel
from ejbd.core.progress import degree, fewest, stretch_by


@kernel
def widest(processes: int, rules: Rules) -> int:
    """Up to how many processors are of use to the job: more than P only where it may grow beyond that."""
    if rules.beyond <= 1.0:
        return processes
    if rules.form == BY_LAW:
        return max(processes, math.floor(processes * rules.beyond))
    return rules.widths[0] if rules.form == BY_TABLE else processes


@kernel
def rung_on(processes: int, processors: int, rules: Rules) -> int:
    """The first rung that fits on so many processors, which are 1 at least; beyond the last where none does."""
    if rules.form == OVER_SUBSCRIBED:
        return degree(processes, processors)
    if rules.form == BY_LAW:
        return processes - min(processors, widest(processes, rules)) + 1
    at = 0
    while at < len(rules.widths) and rules.widths[at] > processors:
        at += 1
    return at - rules.above + 1


@kernel
def last_rung(processes: int, rules: Rules) -> int:
    """The narrowest that the job may run at, by O_max: under Eq. 2 O_max itself, else P/O_max processors."""
    if rules.form == OVER_SUBSCRIBED:
        return rules.omax
    if rules.form == BY_LAW:
        return processes - fewest(processes, rules.omax) + 1
    at = len(rules.widths)
    while at > 0 and rules.widths[at - 1] * rules.omax < processes:
        at -= 1
    return at - rules.above


@kernel
def width_of(processes: int, rung: int, rules: Rules) -> int:
    """The processors that it uses; 0 beyond the last of a table."""
    if rules.form == OVER_SUBSCRIBED:
        return fewest(processes, rung)
    if rules.form == BY_LAW:
        return processes - rung + 1
    at = rung - 1 + rules.above
    return rules.widths[at] if at < len(rules.widths) else 0


@kernel
def stretch_at(processes: int, rung: int, rules: Rules) -> float:
    """How many seconds one second of work at full width takes; the pace is in it."""
    if rules.form == OVER_SUBSCRIBED:
        return stretch_by(rung, rules.delta)
    if rules.form == BY_LAW:
        return rules.pace * math.pow(processes / (processes - rung + 1), rules.alpha)
    return rules.pace * rules.stretches[min(rung + rules.above, len(rules.widths)) - 1]


@kernel
def stretch_on(processes: int, processors: int, rules: Rules) -> float:
    """The same by the processors."""
    return stretch_at(processes, rung_on(processes, processors, rules), rules)


@kernel
def narrowing(processes: int, rung: int, rules: Rules) -> float:
    """P by the width; under Eq. 2 the degree."""
    if rules.form == OVER_SUBSCRIBED:
        return float(rung)
    return float(processes / max(1, width_of(processes, rung, rules)))


@kernel
def move_to_s(rung: int, rules: Rules) -> float:
    """What a move to a rung costs, in seconds: lambda, unless a table says otherwise."""
    if len(rules.moves_s) == 0:
        return rules.lambda_s
    return rules.moves_s[min(rung + rules.above, len(rules.moves_s)) - 1]
