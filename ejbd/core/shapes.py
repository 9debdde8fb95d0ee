"""The nouns of elastic job bundling (Liu & Weissman, SC'15, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

UNLIMITED = math.inf


@dataclass(frozen=True, slots=True)
class Shape:
    """What a batch system is asked for: processors and seconds of walltime."""

    processors: int
    walltime_s: float


@dataclass(frozen=True, slots=True, order=True)
class BackfillSlot:
    """Processors that are free now and may be used for `duration_s` seconds without delaying any planned start.

    A type-I slot has no end (`duration_s` is :data:`UNLIMITED`); a type-II slot ends at a shadow time.
    """

    processors: int
    duration_s: float


class IntervalKind(StrEnum):
    """RUN makes progress; MIGRATE makes none (section 3.2)."""

    RUN = "run"
    MIGRATE = "migrate"


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of an elastic job's life with a constant number of usable processors (`q_k`, `L_k` of Eq. 3)."""

    kind: IntervalKind
    start_s: float
    length_s: float
    processors: int

    @property
    def end_s(self) -> float:
        return self.start_s + self.length_s


Timeline = tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where one rank runs: a subjob, a node of it, and the index of a processor that the subjob was given there."""

    rank: int
    subjob: str
    node: str
    processor: int


Placement = tuple[RankPlace, ...]
