"""Which jobs of a workload may become elastic: by width, by lot, by their users, or by their numbers."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim.workload import Workload

WIDE = 8  # processors: the paper's Table 5


@dataclass(frozen=True, slots=True)
class Choice:
    """Jobs for which all of it holds may become elastic.

    `share`: of those otherwise chosen, that share by lot (0 to 1); a larger share of the same `seed` has all of a
    smaller one's. `users` and `jobs` are the log's numbers (None: all).
    """

    min_processors: int = WIDE
    share: float = 1.0
    seed: int = 1
    users: tuple[int, ...] | None = None
    jobs: tuple[int, ...] | None = None

    def flags(self, workload: Workload) -> Any:
        """Which jobs they are, in the order of submission. Raises EjbError for a user or job that is not in the log."""
        jobs = workload.jobs
        chosen = jobs.processors >= self.min_processors
        if self.users is not None:
            users = np.full(len(workload), -1) if workload.users is None else workload.users
            chosen &= np.isin(users, _known("user", self.users, users, workload.name))
        if self.jobs is not None:
            chosen &= np.isin(jobs.id, _known("job", self.jobs, jobs.id, workload.name))
        if self.share < 1.0:
            lots = np.random.default_rng(self.seed).random(len(workload))
            at = np.flatnonzero(chosen)
            drawn = at[np.argsort(lots[at], kind="stable")[: round(self.share * at.size)]]
            chosen = np.zeros(len(workload), dtype=bool)
            chosen[drawn] = True
        return chosen


def _known(what: str, wanted: tuple[int, ...], there: Any, name: str) -> Any:
    numbers = np.array(wanted, dtype=np.int64)
    missing = numbers[~np.isin(numbers, there)]
    if missing.size:
        some = ", ".join(str(number) for number in missing[:5].tolist()) + (", ..." if missing.size > 5 else "")
        raise EjbError(
            Code.INVALID,
            f"{name} has no {what} {some} among the jobs that are played",
            hint=f"numbers are those of the log's field for the {what}; check the log and --limit",
        )
    return numbers


def parse_numbers(text: str) -> tuple[int, ...]:
    """`3,7` or `3+7`: numbers in a row. Raises ValueError for anything else."""
    words = re.split(r"[,+\s]+", text.strip())
    return tuple(sorted({int(word) for word in words}))


@functools.cache
def _standard_input() -> str:
    """It can be read once only."""
    return sys.stdin.read()


def read_numbers(path: str) -> tuple[int, ...]:
    """The numbers in a file, apart by blanks, commas or lines; what follows a # is a comment. `-` is standard input.

    Raises EjbError that names the line which has something else.
    """
    try:
        text = _standard_input() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read as a list of jobs: {error}") from error
    found: set[int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        try:
            found.update(int(word) for word in words)
        except ValueError:
            raise EjbError(
                Code.INVALID,
                f"line {number} of {path} is no list of job numbers: {line.strip()[:40]!r}",
                where=f"{path}:{number}",
                hint="one number of the log's first field a line",
            ) from None
    if not found:
        raise EjbError(
            Code.INVALID, f"{path} has no job number in it", hint="one number of the log's first field a line"
        )
    return tuple(sorted(found))
