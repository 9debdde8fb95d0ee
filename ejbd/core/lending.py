"""Jobs that wait, and jobs that only borrow: what a policy is told where a job may have to give room back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ejbd.core.shapes import UNLIMITED


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits for processors only, in whole units of them.

    `walltime_s`: infinite where it has none. `of`: the elastic job that it is the J0 of, "" for any other. `served`:
    that job runs elsewhere meanwhile. `in_vain`: room was given back to it, and it did not start.
    """

    id: str
    user: str
    processors: int
    walltime_s: float = UNLIMITED
    of: str = ""
    served: bool = False
    in_vain: bool = False


@dataclass(frozen=True, slots=True)
class Borrower:
    """An elastic job that may be made to give back what it holds: so many processors, for so many seconds from now.

    `move_s`: what a checkpoint costs before they are free, its lambda. `leaves`: subjobs that its ranks leave in place,
    without one; none where it gives back all that it holds.
    """

    job: str
    held: int
    room_s: float
    move_s: float
    leaves: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what has no end becomes None (null)."""
        told = {name: _finite(getattr(self, name)) for name in ("job", "held", "room_s", "move_s")}
        return told | ({"leaves": list(self.leaves)} if self.leaves else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(**{**_endless(data), "leaves": tuple(data.get("leaves", ()))})


@dataclass(frozen=True, slots=True)
class Standing:
    """A batch job that a limit keeps from starting: `limit` is the batch system's word for it, `names` those limits of
    which too little is left. `own`: it is the J0 of the job that is asked."""

    id: str
    user: str
    limit: str
    names: tuple[str, ...] = ()
    own: bool = False

    def sentence(self) -> str:
        """`J0 (12) stands on AssocMaxJobsLimit (MaxJobs of ada in account physics)`."""
        job = f"J0 of this job ({self.id})" if self.own else f"job {self.id} of {self.user}"
        names = f" ({', '.join(self.names)})" if self.names else ""
        return f"{job} stands on {self.limit}{names}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in Standing.__slots__} | {"names": list(self.names)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(**{**data, "names": tuple(data["names"])})


@dataclass(frozen=True, slots=True)
class Lending:
    """The queue in front of some nodes, in its order, and those that borrow of them, in the order in which they came.

    `available` processors are free, or are being given back already. So many of them are `coming` to a waiting job:
    being given back, or free by now and kept for it.
    """

    waiting: tuple[Waiting, ...]
    available: int
    coming: int
    borrowers: tuple[Borrower, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what has no end becomes None (null)."""
        return {
            "waiting": [{name: _finite(getattr(one, name)) for name in Waiting.__slots__} for one in self.waiting],
            "available": self.available,
            "coming": self.coming,
            "borrowers": [one.to_json() for one in self.borrowers],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(
            tuple(Waiting(**_endless(one)) for one in data["waiting"]),
            data["available"],
            data["coming"],
            tuple(map(Borrower.from_json, data["borrowers"])),
        )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and math.isinf(value) else value


def _endless(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: UNLIMITED if value is None else value for key, value in data.items()}
