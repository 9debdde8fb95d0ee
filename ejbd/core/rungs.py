"""The widths at which a job may run, and how fast it is at each: its rungs, in the order of falling width.

Over-subscription keeps P ranks and has the widths ceil(P/d) with a stretch of Delta*d (Eq. 2 of Liu & Weissman,
SC'15). An application that writes its own state, and goes on from it on another number of ranks, is *reshaped*: it runs
on n of its P processors at full speed each. Its stretch is (P/n)^alpha, a prior until its speed at a width is measured.

Work is counted in seconds at the width that was asked for, P, so that a rate is 1 there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Self

from ejbd.core.delta import Delta, delta_at, rate_with
from ejbd.core.progress import fewest, stretch

ALPHA = 1.0  # until something is measured: below 1 less is asked for, and what was asked for might not last
NO_LAW = 0.0


class Shape(StrEnum):
    """Which widths up to P an application takes; a list of them says more than any of these."""

    ANY = "any"
    DIVIDES = "divides"  # widths that divide P
    POWER_OF_TWO = "power-of-two"
    NODES = "nodes"  # as many as whole nodes hold

    def has(self, width: int, processes: int, most: int = 0, node: int = 0) -> bool:
        """Whether a job of so many processes may run at this width; its own is always one.

        `most`: up to how many it may grow. Of `divides` those count above its own that its own and that number frame.
        `node`: how many ranks a node holds; where that is not known (0), `nodes` takes any width.
        """
        if self is Shape.NODES:
            return width == processes or width % max(1, node) == 0
        if self is Shape.DIVIDES:
            return processes % width == 0 or (width % processes == 0 and most % width == 0)
        return self is Shape.ANY or width == processes or width & (width - 1) == 0


@dataclass(frozen=True, slots=True)
class Rungs:
    """Widths with their stretches: by a law (`alpha` above 0, every width), or else as a table.

    `widths` (processors) fall, `stretches` rise: seconds that a second of work at full width takes. Those below 1 are
    of widths beyond the P that was asked for; by a law there are any up to `beyond` times P. `moves_s`, if it is
    there: what a move to each width costs, in seconds. Raises ValueError, in a sentence, for what cannot be.
    """

    alpha: float = NO_LAW
    widths: tuple[int, ...] = ()
    stretches: tuple[float, ...] = ()
    moves_s: tuple[float, ...] = ()
    beyond: float = 1.0

    def __post_init__(self) -> None:
        if bool(self.widths) == (self.alpha > 0.0) or not 0.0 <= self.alpha < math.inf:
            raise ValueError("rungs are a law (alpha above 0) or a table of widths, one of the two")
        if len(self.stretches) != len(self.widths) or len(self.moves_s) not in (0, len(self.widths)):
            raise ValueError("every width of a table has its stretch")
        if any(low >= high for high, low in pairwise(self.widths)) or any(width < 1 for width in self.widths):
            raise ValueError("the widths of a table fall, and are 1 at least")
        if any(more <= less for less, more in pairwise(self.stretches)) or any(one <= 0.0 for one in self.stretches):
            raise ValueError("the stretches of a table rise as its widths fall, and are above 0")
        if not 1.0 <= self.beyond < math.inf or (self.widths and self.beyond > 1.0):
            raise ValueError("a law reaches beyond the width that was asked for by a factor of 1 at least")

    @property
    def above(self) -> int:
        """How many widths of a table are beyond the one that was asked for."""
        return sum(1 for stretch in self.stretches if stretch < 1.0)

    def widest(self, processes: int) -> int:
        """Up to how many processors are of use to a job of so many processes."""
        if self.alpha > 0.0:
            return max(processes, math.floor(processes * self.beyond))
        return self.widths[0]

    def within(self) -> Rungs:
        """The same without the widths beyond the one that was asked for."""
        if self.alpha > 0.0:
            return replace(self, beyond=1.0) if self.beyond > 1.0 else self
        above = self.above
        if not 0 < above < len(self.widths):
            return self
        return replace(self, widths=self.widths[above:], stretches=self.stretches[above:], moves_s=self.moves_s[above:])

    def stretch_on(self, processes: int, processors: int) -> float:
        """Of the widest width that fits on so many processors; infinite where none does."""
        if self.alpha > 0.0:
            used = min(processors, self.widest(processes))
            return math.pow(processes / used, self.alpha) if used > 0 else math.inf
        fits = (at for width, at in zip(self.widths, self.stretches, strict=True) if width <= processors)
        return next(fits, math.inf)

    def width_on(self, processes: int, processors: int) -> int:
        """How many of so many processors are used; 0 where no width fits."""
        if self.alpha > 0.0:
            return min(self.widest(processes), processors)
        return next((width for width in self.widths if width <= processors), 0)

    def move_to_s(self, processors: int, otherwise_s: float) -> float:
        """What a move to the widest width that fits costs, in seconds; `otherwise_s` where that is not told."""
        fits = (at for width, at in zip(self.widths, self.moves_s, strict=False) if width <= processors)
        return next(fits, otherwise_s)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        if self.alpha > 0.0:
            return {"alpha": self.alpha} | ({} if self.beyond == 1.0 else {"beyond": self.beyond})
        return {name: list(getattr(self, name)) for name in ("widths", "stretches", "moves_s")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote. Raises ValueError or TypeError where `data` is not that."""
        given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return cls(**given)


def rate_on(processes: int, processors: int, delta: Delta, rungs: Rungs | None) -> float:
    """Work per second on so many processors, by a job's rungs or, where it has none, by Eq. 2; 0 on none."""
    if rungs is None:
        return rate_with(processes, processors, delta)
    return 1.0 / rungs.stretch_on(processes, processors) if processors > 0 else 0.0


def parse_widths(text: str) -> tuple[Shape, tuple[int, ...]]:
    """What a job says of its widths: a shape, or a list of numbers with commas. Raises ValueError for anything else."""
    if text in set(Shape):
        return Shape(text), ()
    try:
        widths = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        widths = ()
    if not widths or widths[0] < 1 or "_" in text:
        shapes = ", ".join(shape.value for shape in Shape)
        raise ValueError(f"{shapes}, or a list of numbers such as 4,8,16")
    return Shape.ANY, widths


def over_subscribed(processes: int, delta: Delta, omax: int) -> Rungs:
    """Eq. 2 as a table: of equal widths the lowest degree counts, and none that is no faster than a narrower one."""
    table: dict[int, float] = {}
    for degree in range(1, min(omax, processes) + 1):
        width = fewest(processes, degree)
        table.setdefault(width, stretch(degree, delta_at(delta, degree) if degree > 1 else 1.0))
    return table_of(table)


def table_of(
    stretches: Mapping[int, float], moves_s: Mapping[int, float] | None = None, full: int | None = None
) -> Rungs:
    """A table from stretches by width: `full` stays (None: the widest), and of the others those that are slower than
    every wider one. Where `full` is not there any more, all do that are faster than every narrower one.

    A width below it that would be no slower has a rate of 1 and more, which nothing plans with; one that is no faster
    than a narrower one is of no use. Raises ValueError where there is no width at all.
    """
    full = max(stretches) if full is None else full
    at_full = stretches.get(full, 0.0)
    kept: list[int] = []
    best = math.inf
    for width in sorted(stretches):
        slower = width > full or at_full < stretches[width]
        if width == full or (slower and stretches[width] < best):
            kept.append(width)
            best = stretches[width]
    widths = tuple(reversed(kept))
    moves = tuple(moves_s[width] for width in widths) if moves_s else ()
    return Rungs(NO_LAW, widths, tuple(stretches[width] for width in widths), moves)


def rungs_of(
    processes: int,
    *,
    alpha: float = ALPHA,
    measured: Mapping[int, float] | None = None,
    shape: Shape = Shape.ANY,
    widths: Iterable[int] = (),
    least: int = 1,
    most: int = 0,
    moves_s: Mapping[int, float] | None = None,
    barred: Collection[int] = (),
    node: int = 0,
) -> Rungs:
    """The table of one job of P = `processes`.

    `measured`: speed by width, in any unit; the law stands beyond what was measured, and between two measured widths a
    straight line in logarithms does. `widths`: a list in the place of a shape. `least`: no width is below. `most`:
    up to how many it may grow (0: not beyond P). `moves_s`: a move's cost at some widths (seconds), by straight lines
    at all others. `barred`: widths that it cannot have, its own too. `node`: ranks on a node (0: not known).
    Raises ValueError where nothing is left.
    """
    most = max(most, processes)
    listed = sorted(set(widths) or {width for width in range(1, most + 1) if shape.has(width, processes, most, node)})
    candidates = {width for width in listed if least <= width <= most} | {processes}
    candidates -= set(barred)
    known = sorted((width, speed) for width, speed in (measured or {}).items() if width > 0 and speed > 0.0)
    full = _speed(known, processes, alpha)
    costs = sorted((moves_s or {}).items())
    # Planning takes what is faster than the width that was asked for to be beyond it. Without that width others stay.
    least_stretch = 1.0 if processes in barred else 0.0

    def stretch_of(width: int) -> float:
        told = full / _speed(known, width, alpha) if width != processes else 1.0
        return max(told, least_stretch) if width < processes else told

    return table_of(
        {width: stretch_of(width) for width in candidates},
        {width: _between(costs, width) for width in candidates} if costs else None,
        processes,
    )


def _speed(known: Sequence[tuple[int, float]], width: int, alpha: float) -> float:
    """By what was measured, and by the law from the nearest width that was."""
    if not known:
        return math.pow(width, alpha)
    for (low, below), (high, above) in pairwise(known):
        if low <= width <= high:
            share = math.log(width / low) / math.log(high / low)
            return math.exp(math.log(below) + share * math.log(above / below))
    at, speed = known[0] if width <= known[0][0] else known[-1]
    return speed * math.pow(width / at, alpha)


def _between(known: Sequence[tuple[int, float]], width: int) -> float:
    """By straight lines; beyond the first and the last as there."""
    for (low, below), (high, above) in pairwise(known):
        if low <= width <= high:
            return below + (above - below) * (width - low) / (high - low)
    return known[0][1] if width <= known[0][0] else known[-1][1]
