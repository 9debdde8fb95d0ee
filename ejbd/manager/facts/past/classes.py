"""Runs of the past by the classes that a waiting job belongs to: what `gaps` goes by (ejbd.core.speculation.sending).

The nearest class that has ten runs counts: runs of its application, runs as wide with its request, runs of its user
with this request. Behind them are parts of the request: of its user's runs, and of those of all users.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from math import inf

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.speculation.sending import NEWEST, Known
from ejbd.manager.facts.past.pastruns import Application
from ejbd.store.models import PastRun

LOOKED_AT = 5000  # runs of all users that were told last
WHOLE = 0.95  # of what was asked for: a run that was killed after that was killed for good


class Classes:
    """Made of runs, the newest first."""

    def __init__(self, rows: Iterable[tuple[str, str, int, str, float, float | None, str]]) -> None:
        self._kept: dict[tuple[object, ...], list[float]] = {}
        for user, name, processors, kind, run_s, requested_s, outcome in rows:
            if not is_over(run_s, requested_s, outcome):
                continue
            for _, group, unit_s in _groups(Application(user, name, processors, kind), requested_s):
                runs = self._kept.setdefault(group, [])
                if len(runs) < NEWEST:
                    insort(runs, run_s / unit_s)

    def of(self, application: Application, request_s: float) -> list[Known]:
        """What is known of a job that asks for so many seconds, the nearest class first."""
        return [
            Known(what, self._kept[group], unit_s)
            for what, group, unit_s in _groups(application, request_s)
            if group in self._kept
        ]


def _groups(of: Application, request_s: float | None) -> Iterator[tuple[str, tuple[object, ...], float]]:
    """The classes, the nearest first: in words, by what they are kept, and the unit of their runs (seconds)."""
    yield "runs of its application", ("application", *of), 1.0
    if request_s is not None and request_s > 0.0:
        yield "runs of its user as wide with this request", ("alike", of.user, of.processors, request_s), 1.0
        yield "runs of its user with this request", ("request", of.user, request_s), 1.0
        yield "runs of its user, by their requests,", ("user", of.user), request_s
        yield "runs of all users, by their requests,", ("all",), request_s


def is_over(run_s: float, requested_s: float | None, outcome: str) -> bool:
    """Whether a run is over: one that was cut short for less than it asks for is run again."""
    return outcome != "timeout" or run_s >= WHOLE * (requested_s or inf)


def newest(session: Session) -> Classes:
    """Of the runs that were told last."""
    columns = (PastRun.user, PastRun.application, PastRun.processors, PastRun.input_class)
    query = select(*columns, PastRun.run_s, PastRun.requested_s, PastRun.outcome)
    rows = session.execute(query.order_by(PastRun.id.desc()).limit(LOOKED_AT))
    return Classes(rows)
