"""`--dependency`: what it says, and which of it is about jobs of EJB."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class When(StrEnum):
    """What has to have become of a job."""

    AFTER = "after"
    AFTERANY = "afterany"
    AFTEROK = "afterok"
    AFTERNOTOK = "afternotok"
    AFTERCORR = "aftercorr"
    SINGLETON = "singleton"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on one job (`job` "": singleton, on all of the name). `minutes`: after it has begun."""

    when: When
    job: str = ""
    minutes: int = 0

    def __str__(self) -> str:
        if self.when is When.SINGLETON:
            return self.when.value
        return f"{self.when}:{self.job}" + (f"+{self.minutes}" if self.minutes else "")


MOST_JOBS = 1000  # that one dependency of an elastic job names
_JOB = re.compile(r"(?P<id>[0-9a-f]{1,16}(?:_(?:[0-9]{1,7}|\*))?)(?:\+(?P<minutes>[0-9]{1,7}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Depends:
    """`either`: one of the conditions is enough (they stand with `?` between them)."""

    conditions: tuple[Condition, ...]
    either: bool = False

    @classmethod
    def read(cls, text: str) -> Depends | None:
        """None: it is spelt in another way, which sbatch may know."""
        if ("," in text and "?" in text) or text.count(":") > MOST_JOBS:
            return None
        conditions: list[Condition] = []
        for part in re.split(r"[,?]", text):
            word, *jobs = part.split(":")
            if word not in set(When) or (word == When.SINGLETON) is bool(jobs):
                return None
            if not jobs:
                conditions.append(Condition(When.SINGLETON))
            for job in jobs:
                match = _JOB.fullmatch(job)
                if match is None or (match["minutes"] and word != When.AFTER):
                    return None
                conditions.append(Condition(When(word), match["id"].removesuffix("_*"), int(match["minutes"] or 0)))
        return cls(tuple(conditions), "?" in text)

    def only(self, some: Iterable[Condition]) -> Depends:
        return Depends(tuple(some), self.either)

    def __str__(self) -> str:
        return ("?" if self.either else ",").join(map(str, self.conditions))
