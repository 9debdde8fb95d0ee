"""Which jobs are folded for the head of the queue, and which are unfolded again (Utrera et al., 2012, section 3.1).

Algorithm 1 as printed is wrong in two places, as Figure 2c shows. Its line 10 halves the job that starts in any case,
where J2 and J3 of the figure start whole. Its line 9 leaves the job waiting where no running one has to be folded,
where J4 starts folded on processors that are free.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ejbd.core.kernel import kernel


class Begin(NamedTuple):
    """The head starts on so many `processors`, once the first `folded` of the jobs that may be folded are."""

    processors: int
    folded: int


@kernel
def half(width: int) -> int:
    """The processors of a folded job of `width` processes: two of them share one at most (MPL 2)."""
    return -(-width // 2)


def spare(width: int) -> int:
    """What folding a job gives free; 0 for one of a single process, which cannot be folded."""
    return width // 2


def begin(width: int, free: int, spares: Iterable[int], folds: bool = True) -> Begin | None:
    """Whether the head of the queue can start, whole if that can be, else folded (where it `folds`).

    `spares`: what the running jobs that may be folded would give, in the order in which they are to be. None: it waits,
    and none of them is folded in vain.
    """
    if free >= width:
        return Begin(width, 0)
    given = list(spares)
    for target in (width, half(width)) if folds and width > 1 else (width,):
        room, count = free, 0
        while room < target and count < len(given):
            room += given[count]
            count += 1
        if room >= target:
            return Begin(target, count)
    return None


def unfolded(free: int, spares: Iterable[int]) -> list[int]:
    """Once no job waits: the places of the folded jobs that are unfolded on what is free, the first of them first."""
    found = []
    for place, needed in enumerate(spares):
        if needed <= free:
            found.append(place)
            free -= needed
    return found
