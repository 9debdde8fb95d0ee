"""When a batch job of an evolving job, or of a chain of place holders, may begin: kept with the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ejbd.store.models import Subjob


def begins_of(spec: Mapping[str, Any]) -> dict[str, float]:
    """Subjob -> when it may begin (absolute seconds), of the specification that a job stores."""
    evolving, chain = spec.get("evolving") or {}, spec.get("chain") or {}
    return {**evolving.get("begins", {}), **chain.get("begins", {})}


def begin_in_s(spec: Mapping[str, Any], subjob: Subjob, now: float) -> float:
    """Seconds from now; 0: at once."""
    return max(0.0, begins_of(spec).get(subjob.id, 0.0) - now)


def is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Whether an evolving job is not to begin before every width of it is queued."""
    return not (spec.get("evolving") or {}).get("best_effort", False)
