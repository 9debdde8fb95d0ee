"""Plays of the same jobs under EASY and with EJB, pair by pair and pooled: what EJB gains, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

GROUPS = ("all", "elastic", "non_elastic")
RESAMPLED, SEED = 4000, 1
LEVEL = 95.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two plays of the same jobs, as :func:`ejbd.studies.live.comparison.comparison` tells them."""

    name: str
    easy: Mapping[str, Any]
    ejb: Mapping[str, Any]


def turnarounds(play: Mapping[str, Any], group: str, world: str = "live") -> Any:
    """Of each job that counts (all of them, the elastic ones or the others), in seconds; `world`: live or simulated."""
    return np.array(
        [
            job[world][1] - job["submit_s"]
            for job in play["each"]
            if job.get("counted", True) and group in ("all", "elastic" if job["elastic"] else "non_elastic")
        ]
    )


def change_percent(pairs: Sequence[Pair], group: str, world: str = "live") -> float:
    """Of the mean turnaround of all jobs of all pairs, from EASY to EJB, in per cent; negative is a gain."""
    easy, ejb = (
        np.concatenate([turnarounds(play, group, world) for play in plays])
        for plays in ([pair.easy for pair in pairs], [pair.ejb for pair in pairs])
    )
    return 100.0 * (float(ejb.mean()) / float(easy.mean()) - 1.0)


def interval(pairs: Sequence[Pair], group: str) -> tuple[float, float]:
    """Of :func:`change_percent`: the middle 95 % of what is found when pairs, and jobs within each, are drawn anew.

    A job is drawn with both of its turnarounds.
    """
    random = np.random.default_rng(SEED)
    told = [(turnarounds(pair.easy, group), turnarounds(pair.ejb, group)) for pair in pairs]
    told = [both for both in told if both[0].size]
    found = []
    for _ in range(RESAMPLED):
        easy = ejb = 0.0
        for one in random.integers(len(told), size=len(told)):
            drawn = random.integers(told[one][0].size, size=told[one][0].size)
            easy += float(told[one][0][drawn].sum())
            ejb += float(told[one][1][drawn].sum())
        found.append(100.0 * (ejb / easy - 1.0))
    low, high = np.percentile(found, [(100.0 - LEVEL) / 2, (100.0 + LEVEL) / 2])
    return float(low), float(high)


def errors(play: Mapping[str, Any]) -> dict[str, float | None]:
    """How far the simulated mean turnaround is from the live one, in per cent, of each group that there is."""
    return {group: play[group]["error_percent"]["mean_turnaround_s"] for group in GROUPS if group in play}
