"""What is told of queues, of their windows, and of a job that is only asked about: types."""

from __future__ import annotations

from typing import Any, TypedDict

from ejbd.manager.facts.calendars import ToldCalendar
from ejbd.manager.facts.placing.widths import ToldApplication
from ejbd.manager.facts.queues import ToldPause


class ToldSlot(TypedDict):
    """Processors that may be used for so long (None: without an end), and what that end is."""

    processors: int
    duration_s: float | None
    why: str


class ToldClosed(TypedDict):
    """Nodes of a queue that are not used now, and by what. `until_s` None: not known."""

    what: str
    name: str
    nodes: str
    until_s: float | None


class ToldKeptFor(TypedDict):
    """A waiting batch job, and its user, that elastic jobs have given room back to."""

    job: str
    user: str


class ToldWindow(TypedDict):
    """What could be used now of one queue. `by`: what says so; `blind`: why no window is used ("": it is)."""

    queue: str
    at_s: float
    slots: list[ToldSlot]
    closed: list[ToldClosed]
    free: int
    total: int
    by: str
    blind: str
    kept_for: ToldKeptFor | None


class ToldQueue(TypedDict):
    """A queue and its elasticity. `settings` are those of its policy; `overridden`: changed at run time."""

    name: str
    up: bool
    settings: dict[str, Any]
    overridden: list[str]
    waiting: int
    running: int
    elastic_now: bool
    paused: list[ToldPause]
    calendar: ToldCalendar


class ToldPlaceholder(TypedDict):
    """J0 as it would be asked for. `walltime_s` None: no limit was asked for."""

    processors: int
    walltime_s: float | None


class ToldDryRun(TypedDict):
    """What submitting would do now. `decision` and the figures behind it: None of a job that is passed through.

    `free_ahead`: of an evolving job what it was fitted into, pairs of a time and processors that are free from then on.
    """

    queue: str
    elastic: bool
    why: str
    code: str | None
    engine: str
    slots: list[ToldSlot]
    decision: dict[str, Any] | None
    free_ahead: list[tuple[float, int]]
    cost: dict[str, Any] | None
    penalty: dict[str, Any] | None
    deltas: list[dict[str, Any]]
    overheads: dict[str, Any] | None
    placeholder: ToldPlaceholder
    walltimes: dict[str, Any] | None
    application: ToldApplication | None


class ToldPlan(ToldDryRun):
    """The same, and sentences for its user from what the batch system and its own reading say."""

    notes: list[str]
