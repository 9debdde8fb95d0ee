"""What is planned for a job, and what was measured of it: costs, walltimes, widths."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
)

from ejbd.api.models.base import Api
from ejbd.manager.facts.room.outlook import PlannedKind


class Slot(Api):
    """Processors that may be used now for so long (null: without an end)."""

    processors: int
    duration_s: float | None
    why: Annotated[str, Field(description="what its end is: a planned start, a reservation, a limit; empty: none")] = ""


class PlaceholderShape(Api):
    """What J0 (or a passed-through job) asks of the batch system."""

    processors: int
    walltime_s: float | None


class MoveCost(Api):
    """What a move costs (lambda) and where that is known from. Parts that are not known are null."""

    lambda_s: float
    reserve_s: Annotated[float, Field(description="the last checkpoint begins so long before a subjob's end")]
    source: Literal["job", "measured", "guessed", "configured"]
    why: str
    samples: int
    bytes: int | None
    checkpoint_s: float | None
    write_s: float | None
    wait_s: float | None
    restart_s: float | None


class Penalty(Api):
    """Delta, the penalty factor of over-subscription (Eq. 2), and where that is known from."""

    delta: float
    source: Literal["job", "measured", "calibrated", "configured"]
    why: str
    samples: int


class DeltaView(Penalty):
    """Delta as it was measured at one degree."""

    degree: int


class Overhead(Api):
    """A figure (seconds; of the pace a factor), where it comes from, and how many measurements are behind it."""

    value: float
    source: Literal["measured", "guessed", "configured"]
    why: str
    samples: int


class Overheads(Api):
    """What a start and an end cost beside lambda."""

    start_up_s: Annotated[float, Field(description="from a subjob's start until its ranks run: ready and launch")]
    ready: Annotated[Overhead, Field(description="from a subjob's start until its workers answer")]
    launch: Annotated[Overhead, Field(description="from there until ranks run, where none are restarted")]
    giving_back: Annotated[Overhead, Field(description="from when ranks need a subjob no more until it is free")]
    pace: Annotated[Overhead, Field(description="seconds at full width for one of an ordinary job of the command")]


class PlannedView(Api):
    """A stretch of what is planned, in the order of time and without gaps.

    `run` makes progress; a `move` holds processors and makes none; `suspended` and `wait` hold none, with work kept or
    with nothing done yet; at `cut_off` what is held ends before the job is done, and nothing is kept. Without a further
    stretch behind it the job is done, or at its time limit, unless `end_s` is null.
    """

    kind: PlannedKind
    start_s: float
    end_s: Annotated[float | None, Field(description="null: nothing is planned behind it")]
    processors: int
    degree: Annotated[int, Field(description="of over-subscription, while ranks run; 0 otherwise")]
    on_placeholder: Annotated[bool, Field(description="J0 is what it runs on")]


DELTAS = "Delta at each degree at which the application was measured, the lowest first"
OVERHEADS = "what a start and an end cost beside lambda, as far as is known"
PLANNED = "what is to come, by the plan as it stands; empty: nothing is planned"


class GapView(Api):
    """A window that a job was sent into. `end` "": it is there, or on its way."""

    walltime_s: float
    processors: Annotated[int, Field(description="of the attempt")]
    until_s: float
    finishes: Annotated[float, Field(description="the probability that the run is done in it")]
    by: Annotated[str, Field(description="of which runs how many were; empty: by a law")] = ""
    utilisation: Annotated[float | None, Field(description="of attempts by a law: the share of use expected")] = None
    end: str


class RaisedView(Api):
    """A plan that is shorter than the request. `end` "": it stands, or is to; then `raised`, or `refused`."""

    first_s: float
    asked: Annotated[bool, Field(description="it is being raised")]
    end: str


class WalltimesView(Api):
    """The walltimes that were learned for a job. `sequence_s` empty: the user's own stands, and `why`."""

    why: str
    by: Annotated[Literal["job", "queue"], Field(description="what asked for a learned walltime")]
    application: str
    input_class: str
    processors: int
    own_s: Annotated[float | None, Field(description="the user's own request; null: none")]
    limit_s: Annotated[float | None, Field(description="the least of the user's own and the queue's; null: none")]
    law: str | None = None
    form: str | None = None
    mean_s: float | None = None
    sequence_s: list[float] = []
    progress_s: Annotated[
        list[float], Field(description="of what is resumed: how far the run may have come by the end of each")
    ] = []
    planned_s: Annotated[
        list[float], Field(description="the run time that it is planned with where its own is asked for, then its own")
    ] = []
    points_s: Annotated[
        list[float], Field(description="run times, all as probable, by which its moves are weighed (weigh_by)")
    ] = []
    at: Annotated[int, Field(description="the index of the walltime that is asked for (or planned with) now")] = 0
    left: Annotated[str | None, Field(description="the J0 that was left last, saved before its end")] = None
    finishes: Annotated[list[float], Field(description="that each is enough where those before were not")] = []
    costs_s: Annotated[
        list[float], Field(description="expected to be asked for altogether where the sequence began with this one")
    ] = []
    expected_cost_s: float | None = None
    own_cost_s: Annotated[float | None, Field(description="the same for the user's own request, asked for once")] = None
    checkpoint_s: Annotated[float | None, Field(description="C, where a run resumes from a checkpoint")] = None
    restart_s: Annotated[float | None, Field(description="R")] = None
    raised: Annotated[RaisedView | None, Field(description="what it is planned with, and raised from")] = None
    gaps: Annotated[list[GapView], Field(description="windows that it was sent into with less than it asks for")] = []


class WidthView(Api):
    """A number of ranks at which an application can go on."""

    ranks: int
    takes_s: Annotated[float, Field(description="seconds for the work that is left, were it at this width")]
    measured: Annotated[bool, Field(description="its speed was measured there; else by the law")]


class ApplicationView(Api):
    """An application that is restarted on the number of ranks that fits."""

    profile: Annotated[str, Field(description="by which it is run; empty: by the contract of engine application")]
    widths: Annotated[list[WidthView], Field(description="the widest first; some of them, where there are many")]
    now: Annotated[int | None, Field(description="ranks that run")]
    not_again: Annotated[list[int], Field(description="widths at which it did not go on; not tried again")] = []
    least_by_memory: Annotated[
        int,
        Field(description="with fewer ranks each would need more memory than a node has; 1: with any it has enough"),
    ] = 1
    why: Annotated[str, Field(description="why the present launch is not run by the profile; empty: it is")]


APPLICATION = "null: of a job that keeps its number of ranks"


class Plan(Api):
    """What would be done with a job now. Nothing is kept."""

    name: str
    queue: str | None
    processes: int
    walltime_s: Annotated[float | None, Field(description="null: none, or unlimited")]
    elastic: bool
    why: str
    code: Annotated[str | None, Field(description="of `why`, for programs; null: it has none")] = None
    engine: str
    slots: list[Slot]
    decision: Annotated[dict[str, Any] | None, Field(description="the decision with its candidates and reasons")]
    planned: Annotated[list[PlannedView], Field(description=PLANNED)] = []
    free_ahead: Annotated[
        list[tuple[float, int]],
        Field(description="of an evolving job what it was fitted into: times, and processors free from then on"),
    ] = []
    cost: Annotated[MoveCost | None, Field(description="what a move of it would cost, as far as is known")] = None
    penalty: Annotated[Penalty | None, Field(description="Delta as it would be planned with")] = None
    deltas: Annotated[list[DeltaView], Field(description=DELTAS)] = []
    overheads: Annotated[Overheads | None, Field(description=OVERHEADS)] = None
    placeholder: PlaceholderShape | None
    walltimes: Annotated[WalltimesView | None, Field(description="null: its own walltime is asked for")] = None
    application: Annotated[ApplicationView | None, Field(description=APPLICATION)] = None
    notes: list[str]
