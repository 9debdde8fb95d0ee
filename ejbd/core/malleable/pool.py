"""A pool as its policy sees it: processors that no batch system schedules, and the jobs that run on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class PoolJob:
    """A job that runs in a pool, on `processors` of them; it is folded where it has more `processes`.

    `requested_s`: its walltime. `use`: of its processors' time, the share that it computes in (0 to 1). `folds`: it may
    be folded, which takes a measured Delta and the memory for it.
    """

    job: str
    processes: int
    processors: int
    requested_s: float
    use: float = 1.0
    folds: bool = True


@dataclass(frozen=True, slots=True)
class Pool:
    """Free processors, the jobs that run in the order of their starts, and how many wait."""

    free: int
    running: tuple[PoolJob, ...] = ()
    waiting: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"free": self.free, "running": [asdict(one) for one in self.running], "waiting": self.waiting}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(data["free"], tuple(PoolJob(**one) for one in data["running"]), data["waiting"])
