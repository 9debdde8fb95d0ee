"""The parameters of FCFS-malleable, and the order in which jobs are folded by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ejbd.core.malleable.stretching import Model
from ejbd.core.parameters import Parameter, Parameters


class First(StrEnum):
    """Which running job is folded first, and unfolded first."""

    OLDEST = "oldest"  # the paper's choice
    LEAST_USED = "least-used"
    LONGEST = "longest"
    SHORTEST = "shortest"

    def key(self, started: int, use: float, requested_s: float) -> tuple[float, int]:
        """Jobs in the order of this key; `started` counts starts up."""
        match self:
            case First.LEAST_USED:
                return use, started
            case First.LONGEST:
                return -requested_s, started
            case First.SHORTEST:
                return requested_s, started
        return 0.0, started


@dataclass(frozen=True, slots=True)
class MalleableParameters(Parameters):
    """What FCFS-malleable goes by, and how the simulator reckons what a folded job takes."""

    first: Annotated[
        First,
        Parameter(says="which job is folded first: the oldest, the least used, the longest or the shortest request"),
    ] = First.OLDEST
    mpl: Annotated[
        int,
        Parameter(says="most processes of a job that share a processor: with 1 no job is folded", least=1, most=2),
    ] = 2
    model: Annotated[
        Model,
        Parameter(
            says="what a folded job takes: `delta` (Eq. 2), `linear` (twice as long), `stretch`, `paper` or `ovshrunk`",
            more="`paper` and `ovshrunk` are the paper's formulas 3 and 4, by a drawn overhead",
        ),
    ] = Model.DELTA
    stretch: Annotated[
        float, Parameter(says="how many times as long a folded job takes (model `stretch`)", least=1, most=100)
    ] = 1.6
    use: Annotated[
        float,
        Parameter(says="processor use of jobs on average, where the log does not say", least=0.01, most=1),
    ] = 0.57
    use_long: Annotated[
        float,
        Parameter(says="the same of long jobs: above 64 processors and 8 hours", least=0.01, most=1),
    ] = 0.7
    draw: Annotated[
        int, Parameter(says="draw overheads, and processor use that is not known, by this seed", least=0, most=10**9)
    ] = 1

    def __post_init__(self) -> None:
        if not 1 <= self.mpl <= 2:  # a simulation could else go beyond what is declared
            raise ValueError(f"mpl is 1 or 2, not {self.mpl}")
