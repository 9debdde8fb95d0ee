"""What the batch system has charged for a subjob so far."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from ejbd.store.models import Subjob


def processor_s(subjob: Subjob | Row[Any], now: float) -> float | None:
    """Processor-seconds that a subjob has been charged by its batch system so far. None where that is not known: the
    elements of an array have times of their own.
    """
    if subjob.elements is not None:
        return None
    return held_s(subjob, now) * subjob.processors


def held_s(subjob: Subjob | Row[Any], now: float) -> float:
    """Seconds from its start until its end, or now."""
    if subjob.start_s is None:
        return 0.0
    end_s = now if subjob.end_s is None else min(subjob.end_s, now)
    return max(0.0, float(end_s - subjob.start_s))
