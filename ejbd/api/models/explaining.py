"""Why a job is as it is: decisions, moves, memory, and its course over time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
)

from ejbd.api.models.base import Api
from ejbd.api.models.jobs import SubjobView
from ejbd.api.models.plans import (
    APPLICATION,
    DELTAS,
    OVERHEADS,
    PLANNED,
    ApplicationView,
    DeltaView,
    MoveCost,
    Overheads,
    Penalty,
    PlannedView,
    WalltimesView,
)
from ejbd.store.states import JobState
from ejbd.store.timeline import Phase


class PastDecision(Api):
    """A decision and when it was taken."""

    at_s: float
    kind: str
    decision: dict[str, Any]
    cost: Annotated[dict[str, Any] | None, Field(description="what a move was thought to cost then")] = None
    penalty: Annotated[dict[str, Any] | None, Field(description="Delta as it was thought to be then")] = None
    overheads: Annotated[dict[str, Any] | None, Field(description="starts and ends as they were known then")] = None


class CheckpointInterval(Api):
    """Periodic checkpoints against lost nodes. `next_s`: when the next one is due; null while no rank runs."""

    interval_s: Annotated[float | None, Field(description="null: there are none")]
    why: str
    next_s: float | None


class Movability(Api):
    """Whether a job can be moved: `movable` null where that is not known yet."""

    movable: bool | None
    why: str


class NodeShare(Api):
    """One node's part of a checkpoint."""

    node: str
    bytes: int
    seconds: float
    write_s: float


class MoveView(Api):
    """A checkpoint of the application and the restart from it. `to_...` null: it was not started again."""

    job_id: str
    epoch: int
    at_s: float
    processors: int
    nodes: int
    to_processors: int | None
    to_nodes: int | None
    bytes: int
    checkpoint_s: float
    write_s: float
    wait_s: float
    restart_s: float | None
    by_node: list[NodeShare]


class SpeedView(Api):
    """How fast a placement of the application got on: `units` of its own in `seconds`. `degree` 1: at full width."""

    job_id: str
    launch: int
    epoch: int
    at_s: float
    processors: int
    degree: int
    units: float
    seconds: float
    total: Annotated[float | None, Field(description="where the application said that it would end")]


class RunView(Api):
    """A whole run of the application, or of one of its commands passed through. `over`: degree -> seconds at it."""

    job_id: str
    at_s: float
    full_s: Annotated[float, Field(description="seconds that its ranks computed at full width")]
    over: dict[str, float]
    elastic: Annotated[bool | None, Field(description="EJB ran it; null: kept by an older version")] = None


class Explanation(Api):
    """Why a job is where it is."""

    state: JobState
    now: Annotated[str, Field(description="one sentence")]
    notes: Annotated[list[str], Field(description="what was told when it was submitted")] = []
    decisions: list[PastDecision]
    present: dict[str, Any] | None
    planned: Annotated[list[PlannedView], Field(description=PLANNED)] = []
    cost: Annotated[MoveCost | None, Field(description="what a move costs, as planning sees it now")] = None
    penalty: Annotated[Penalty | None, Field(description="Delta, as planning sees it now")] = None
    deltas: Annotated[list[DeltaView], Field(description=DELTAS)] = []
    overheads: Annotated[Overheads | None, Field(description=OVERHEADS)] = None
    checkpoints: Annotated[CheckpointInterval | None, Field(description="null: of a job that is passed through")] = None
    movable: Annotated[Movability | None, Field(description="null: of a job that is passed through")] = None
    moves: Annotated[list[MoveView], Field(description="the application's latest moves, newest first")] = []
    speeds: Annotated[list[SpeedView], Field(description="how fast it got on of late, newest first")] = []
    runs: Annotated[list[RunView], Field(description="its latest runs that ended well, newest first")] = []
    walltimes: Annotated[WalltimesView | None, Field(description="null: its own walltime was asked for")] = None
    application: Annotated[ApplicationView | None, Field(description=APPLICATION)] = None


class HopView(Api):
    """Something that a move waited for, and when it was there."""

    at_s: float
    what: str
    subjob: str | None
    node: str | None


class MoveHops(Api):
    """One start, move or end of a job's ranks, hop by hop. Seconds that are null: it did not come to that."""

    kind: Literal["start", "move", "end"]
    epoch: Annotated[int, Field(description="the placement that it led to; of an end, the last one")]
    before: Annotated[int, Field(description="processors that were left; 0: none")]
    processors: Annotated[int, Field(description="processors that were come to; 0: none")]
    seen_to_running_s: Annotated[float | None, Field(description="from when the last new subjob was known to run")]
    started_to_running_s: Annotated[float | None, Field(description="from the batch system's start of that subjob")]
    still_s: Annotated[float | None, Field(description="from the asking for a checkpoint until all ranks ran again")]
    end_to_free_s: Annotated[float | None, Field(description="from the last rank's end until its processors were free")]
    hops: list[HopView]


class JobMoves(Api):
    """Every start, move and end of a job, oldest first."""

    job: str
    moves: list[MoveHops]


class IntervalView(Api):
    """A stretch of a job's life. `end_s` null: it still lasts."""

    kind: Phase
    start_s: float
    end_s: float | None
    processors: int
    subjobs: list[str]


class Timeline(Api):
    """What a job did until now, and what it is planned to do."""

    job: str
    name: str
    state: JobState
    now_s: float
    submit_s: float
    start_s: float | None
    end_s: float | None
    processes: int
    progress: float
    rigid_start_s: float | None
    expected_completion_s: float | None
    intervals: Annotated[list[IntervalView], Field(description="what has been, from the submission on, without gaps")]
    planned: Annotated[list[PlannedView], Field(description=PLANNED)] = []
    expected_end_s: Annotated[float | None, Field(description="by what is planned, else by the last decision")] = None
    subjobs: list[SubjobView]
