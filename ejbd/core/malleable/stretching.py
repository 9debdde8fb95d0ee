"""What a folded job takes: seconds for each second of its run in its own shape, by models with names."""

from __future__ import annotations

from enum import StrEnum

from ejbd.core.delta import Delta, delta_at


class Model(StrEnum):
    """How long a job takes expanded, and folded. U: its processor use; OV: its overhead, drawn from 0 to 1."""

    DELTA = "delta"  # 1 and 2 Delta(2): Eq. 2 of Liu & Weissman
    LINEAR = "linear"  # 1 and 2, as Figure 2 of Utrera et al.
    STRETCH = "stretch"  # 1 and a factor
    PAPER = "paper"  # U + OV and 2U + OV: formulas 3 and 4 of Utrera et al. as they are printed
    OVSHRUNK = "ovshrunk"  # 1 and max(1, 2U + OV)


def paces(model: Model, *, use: float, overhead: float, stretch: float, delta: Delta) -> tuple[float, float]:
    """Seconds for a second of work, expanded and folded."""
    match model:
        case Model.LINEAR:
            return 1.0, 2.0
        case Model.STRETCH:
            return 1.0, stretch
        case Model.PAPER:
            return use + overhead, 2.0 * use + overhead
        case Model.OVSHRUNK:
            return 1.0, max(1.0, 2.0 * use + overhead)
    return 1.0, 2.0 * delta_at(delta, 2)
