"""The nouns of elastic job bundling (Liu & Weissman, SC'15, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

UNLIMITED = math.inf


@dataclass(frozen=True, slots=True, order=True)
class BackfillSlot:
    """Processors that are free now and may be used for `duration_s` seconds without delaying any planned start.

    A type-I slot has no end (`duration_s` is :data:`UNLIMITED`); a type-II slot ends at a shadow time.
    """

    processors: int
    duration_s: float
