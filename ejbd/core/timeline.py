"""What a policy plans for one job, as intervals. Every answer carries it, people see it, the next event is in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self


class PlannedKind(StrEnum):
    """RUN makes progress. MOVE holds processors and makes none (section 3.2). SUSPENDED holds none: the job waits on
    with its work kept. WAIT holds none either, and nothing is done yet. CUT_OFF: what is held ends before the job is
    done, and nothing is kept. No policy plans the last two (see `ejbd.core.outlook`)."""

    RUN = "run"
    MOVE = "move"
    SUSPENDED = "suspended"
    WAIT = "wait"
    CUT_OFF = "cut_off"


@dataclass(frozen=True, slots=True)
class PlannedInterval:
    """A stretch of a job's planned life with a constant number of usable processors (`q_k`, `L_k` of Eq. 3).

    Times are absolute seconds and not rounded; `end_s` is infinite (null in JSON) where nothing is planned behind it.
    `degree` is that of over-subscription while ranks run, 0 otherwise. `on_placeholder`: J0 is what is held.
    """

    kind: PlannedKind
    start_s: float
    end_s: float
    processors: int
    degree: int
    on_placeholder: bool = False

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "kind": self.kind.value,
            "start_s": self.start_s,
            "end_s": self.end_s if math.isfinite(self.end_s) else None,
            "processors": self.processors,
            "degree": self.degree,
            "on_placeholder": self.on_placeholder,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The interval that `to_json` wrote. Raises KeyError or ValueError where `data` is not one."""
        end_s = math.inf if data["end_s"] is None else data["end_s"]
        kind = PlannedKind(data["kind"])
        return cls(kind, data["start_s"], end_s, data["processors"], data["degree"], data["on_placeholder"])


PlannedTimeline = tuple[PlannedInterval, ...]
"""In the order of time, without gaps, from now to the completion or to where nothing more is planned. Empty: the job
waits, and nothing is planned but the start of J0, which the batch system knows."""


def timeline_from_json(data: Sequence[Mapping[str, Any]]) -> PlannedTimeline:
    """The timeline of the intervals that `to_json` wrote."""
    return tuple(PlannedInterval.from_json(interval) for interval in data)


def from_now(timeline: PlannedTimeline, now_s: float) -> PlannedTimeline:
    """What is still to come of a timeline that was planned before `now_s`."""
    left = (interval for interval in timeline if interval.end_s > now_s)
    return tuple(replace(interval, start_s=max(now_s, interval.start_s)) for interval in left)


def until(timeline: PlannedTimeline, end_s: float) -> PlannedTimeline:
    """What of a timeline comes before `end_s`."""
    kept = (interval for interval in timeline if interval.start_s < end_s)
    return tuple(replace(interval, end_s=min(end_s, interval.end_s)) for interval in kept)
