"""The indices of `--array`, as sbatch spells them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from ClusterShell.RangeSet import RangeSet

_PART = re.compile(r"(?P<first>[0-9]{1,7})(?:-(?P<last>[0-9]{1,7})(?::(?P<step>[0-9]{1,7}))?)?", re.ASCII)
_SHORTEST_STEP = 3  # indices that are written as a range with a step


@dataclass(frozen=True)
class Indices:
    """`parts` as they were written (`1,3-5,7-20:2`); `most`: elements at a time (None: as many as there are)."""

    parts: tuple[range, ...]
    most: int | None

    @classmethod
    def read(cls, text: str) -> Indices | None:
        """None: these are no indices."""
        listed, percent, most = text.partition("%")
        parts = []
        for word in listed.split(","):
            match = _PART.fullmatch(word)
            if match is None:
                return None
            first, last, step = int(match["first"]), int(match["last"] or match["first"]), int(match["step"] or 1)
            if last < first or not step:
                return None
            parts.append(range(first, last + 1, step))
        if percent and not (most.isascii() and most.isdigit() and len(most) <= 7):
            return None
        return cls(tuple(parts), int(most or 0) or None)

    def __contains__(self, index: int) -> bool:
        return any(index in part for part in self.parts)

    @property
    def count(self) -> int:
        """How many, with each as often as it is named."""
        return sum(map(len, self.parts))

    @property
    def last(self) -> int:
        return max(part[-1] for part in self.parts)

    @cached_property
    def all(self) -> RangeSet:
        """Each once. May take as long as there are indices: look at `count` before."""
        return ranges(index for part in self.parts for index in part)

    @property
    def step(self) -> int:
        """SLURM_ARRAY_TASK_STEP."""
        return self.parts[0].step if len(self.parts) == 1 else 1


def ranges(indices: Iterable[int]) -> RangeSet:
    """Indices as a set that is written in a short way."""
    found = RangeSet(autostep=_SHORTEST_STEP)
    found.update(map(str, indices))
    return found


def folded(indices: RangeSet | Iterable[int]) -> str:
    """In the notation of `--array`: `0-9`, `1,3-20:2`."""
    found = indices if isinstance(indices, RangeSet) else ranges(indices)
    return str(found).replace("/", ":")


def chosen(text: str, among: Collection[int]) -> RangeSet:
    """Those of `among` that a user names, however many else. Raises ValueError for what names no indices."""
    found = Indices.read(text)
    if found is None or found.most is not None:
        raise ValueError(f"{text!r} names no indices")
    return ranges(index for index in among if index in found)


def unfolded(text: str) -> RangeSet:
    """What :func:`folded` wrote. Raises ValueError for anything else."""
    if not text:
        return ranges(())
    found = Indices.read(text)
    if found is None or found.most is not None:
        raise ValueError(f"{text!r} names no indices")
    return found.all
