"""The course of an evolving job that has begun: its profile by the clock, and how that changes on the way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from ejbd.core.evolving.blocks import Block, blocks
from ejbd.core.evolving.profiles import Profile, Step, seconds_of
from ejbd.core.progress import degree
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline


@dataclass(frozen=True, slots=True)
class Course:
    """When each step begins, and when the last one ends (absolute seconds)."""

    profile: Profile
    starts_s: tuple[float, ...]
    end_s: float
    base: int  # places that are held throughout: what all steps had in common when it began

    @classmethod
    def beginning(cls, profile: Profile, at_s: float) -> Self:
        """No step is held."""
        starts, at = [], at_s
        for step in profile.steps:
            starts.append(at)
            at += step.duration_s
        return cls(profile, tuple(starts), at, base_of(profile))

    @property
    def increments(self) -> tuple[Block, ...]:
        """What is held beyond the base, by the steps."""
        found = blocks([self.base, *(step.processors for step in self.profile.steps)])
        return tuple(Block(block.first - 1, block.last - 1, block.processors) for block in found[1:])

    def begins(self, block: Block) -> float:
        return self.starts_s[block.first]

    def ends(self, block: Block) -> float:
        return self.starts_s[block.last + 1] if block.last + 1 < len(self.starts_s) else self.end_s

    def step_at(self, now_s: float) -> int:
        """The step that is under way, from 0; the last one where all are over, the first before they begin."""
        return max(0, bisect_right(self.starts_s, now_s) - 1)

    def width_at(self, now_s: float) -> int:
        """The places of the step that is under way."""
        return self.profile.steps[self.step_at(now_s)].processors

    def put_off(self, step: int, until_s: float) -> Self:
        """A step begins later, and all behind it: the one before is held (the first one too: it has begun)."""
        late_s = until_s - self.starts_s[step]
        if late_s <= 0:
            return self
        starts = (*self.starts_s[:step], *(start + late_s for start in self.starts_s[step:]))
        return replace(self, starts_s=starts, end_s=self.end_s + late_s)

    def slowed(self, step: int, by_s: float) -> Self:
        """A step that has begun lasts longer, and all behind it begins later."""
        starts = (*self.starts_s[: step + 1], *(start + by_s for start in self.starts_s[step + 1 :]))
        return replace(self, starts_s=starts, end_s=self.end_s + by_s)

    def resumed(self, left_s: float, now_s: float) -> Self:
        """What is left of a course that stood still from `left_s` on goes on now."""
        step = self.step_at(left_s)
        gone_s = max(0.0, now_s - max(left_s, self.starts_s[0]))
        starts = (*self.starts_s[: step + 1], *(start + gone_s for start in self.starts_s[step + 1 :]))
        return replace(self, starts_s=starts, end_s=self.end_s + gone_s)

    def replaced(self, tail: tuple[tuple[float, int], ...], end_s: float) -> Self:
        """With what begins from the first of these times (absolute seconds) on in the place of what was planned.

        Steps that have begun by then stay as they are. Raises ValueError for times that do not grow up to `end_s`, and
        for a width below the base.
        """
        if any(width < self.base for _, width in tail):
            raise ValueError(f"{self.base} places are held throughout, and no step can have less")
        times = [time_s for time_s, _ in tail]
        if not tail or times[0] < self.starts_s[0] or any(b <= a for a, b in pairwise([*times, end_s])):
            raise ValueError("the times of the steps have to grow, up to the end of the profile")
        kept = [at for at, start in enumerate(self.starts_s) if start < times[0]]
        starts = (*(self.starts_s[at] for at in kept), *times)
        widths = [*(self.profile.steps[at].processors for at in kept), *(width for _, width in tail)]
        ends = [*starts[1:], end_s]
        steps = tuple(Step(end - at, width) for at, end, width in zip(starts, ends, widths, strict=True))
        return replace(self, profile=Profile(steps), starts_s=starts, end_s=end_s)

    def timeline(self, now_s: float, ranks: int, each: int = 1) -> PlannedTimeline:
        """What is still to come of so many ranks, for people: the wait for the first step, too. `each`: processors of
        a place.
        """
        begin_s = self.starts_s[0]
        late = begin_s - now_s >= 1  # a fit begins at a whole second
        waits = (PlannedInterval(PlannedKind.WAIT, now_s, begin_s, 0, 0),) if late else ()
        ends = (*self.starts_s[1:], self.end_s)
        return waits + tuple(
            PlannedInterval(
                PlannedKind.RUN, max(now_s, start), end, step.processors * each, degree(ranks, step.processors)
            )
            for step, start, end in zip(self.profile.steps, self.starts_s, ends, strict=True)
            if end > now_s
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "steps": self.profile.to_json(),
            "starts_s": list(self.starts_s),
            "end_s": self.end_s,
            "base": self.base,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(profile_from_json(data), tuple(data["starts_s"]), data["end_s"], data["base"])


def profile_from_json(data: Mapping[str, Any]) -> Profile:
    """The profile of what a job stores, before it has begun, too.

    It was checked as it came in. A tail that was replaced since then begins by the clock, at no whole second.
    """
    return Profile(tuple(Step(duration, int(width)) for duration, width in data["steps"]))


def base_of(profile: Profile) -> int:
    """The part that all steps have in common."""
    return min(step.processors for step in profile.steps)


def parse_tail(text: str, now_s: float) -> tuple[tuple[float, int], ...]:
    """The steps that come, each when it begins (absolute seconds) and how wide it is: `now:64,+1800s:128`.

    Raises ValueError with one sentence.
    """
    found = []
    for number, part in enumerate(text.split(","), 1):
        when, colon, width = part.strip().partition(":")
        ahead = when.strip().removeprefix("+")
        try:
            if not colon or not width.strip().isdecimal() or not (when.strip() == "now" or when.strip()[:1] == "+"):
                raise ValueError
            ahead_s = 0.0 if ahead == "now" else seconds_of(ahead)
            found.append((now_s + ahead_s, int(width)))
        except ValueError:
            what = f"step {number} of the tail, {part.strip()[:40]!r}, is no time and width"
            raise ValueError(f"{what}; write now:64,+30m:128") from None
    return tuple(found)
