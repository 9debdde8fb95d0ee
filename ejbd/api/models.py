"""What the REST API takes and gives. Times are seconds since the epoch (UTC), durations are seconds."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ejbd.config import QueueSettings, changes_schema, check_changes, settings_schema
from ejbd.manager.facts.room.outlook import PlannedKind
from ejbd.plugins.engines import known_engines
from ejbd.store.states import JobState, SubjobState
from ejbd.store.timeline import Phase
from ejbd.wire.kinds import JobKind, SubjobRole
from ejbd.wire.rights import Scope

PLAIN = r"^[^\x00-\x1f\x7f]*$"
NAME = r"^[^\x00-\x1f\x7f]+$"


class Api(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


MOST_WORDS = 65_536  # of a command, or variables of an environment; the kernel takes 2 MiB of both together
MOST_UNKNOWN = 20  # fields that are named


class Body(Api):
    """What may come in large. Its validation ends at the first faults: each of millions would be an object."""

    @model_validator(mode="before")
    @classmethod
    def _some_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict) or len(data) <= len(cls.model_fields) + MOST_UNKNOWN:
            return data
        unknown = itertools.islice((key for key in data if key not in cls.model_fields), MOST_UNKNOWN)
        return {key: data[key] for key in (*(data.keys() & cls.model_fields.keys()), *unknown)}


Words = Annotated[list[str], Field(max_length=MOST_WORDS, fail_fast=True)]
Setting = Annotated[str | None, Field(max_length=4096)]


def _known_engine(name: str) -> str:
    if name not in known_engines():
        raise ValueError(f"{name[:40]!r} is none of: {', '.join(known_engines())}")
    return name


EngineAsked = Annotated[str, AfterValidator(_known_engine), Field(json_schema_extra={"enum": list(known_engines())})]


class OverridesBody(Body):
    """Settings that win over the script's. Texts are in sbatch's spelling."""

    ntasks: Annotated[int | None, Field(description="processes (ranks)")] = None
    nodes: Annotated[int | None, Field(description="nodes of the layout that is asked for")] = None
    ntasks_per_node: int | None = None
    time: Annotated[Setting, Field(description="walltime in any spelling of Slurm, e.g. 30 or 1-12:00:00")] = None
    name: Setting = None
    partition: Setting = None
    account: Setting = None
    qos: Setting = None
    output: Setting = None
    error: Setting = None
    chdir: Setting = None
    export: Annotated[str | None, Field(max_length=1_000_000)] = None
    elastic: Annotated[Literal["on", "off", "auto"] | None, Field(description="auto: as the queue says")] = None
    engine: EngineAsked | None = None
    mpi: Annotated[str | None, Field(max_length=64, description="auto, mpich, openmpi, none, or a profile's name")] = (
        None
    )
    omax: int | None = None
    lambda_s: Annotated[float | None, Field(allow_inf_nan=False)] = None
    delta: Annotated[float | None, Field(allow_inf_nan=False)] = None
    checkpoint: Annotated[str | None, Field(max_length=64, description="off, auto, or seconds between two")] = None
    app: Annotated[str | None, Field(max_length=400, description="NAME[:CLASS]: what the run time is learned of")] = (
        None
    )
    walltime: Annotated[
        Literal["auto", "own"] | None,
        Field(
            description="auto: learned from earlier runs, never above `time`; own: as `time` says; null: as the queue"
        ),
    ] = None
    profile: Annotated[
        str | None, Field(max_length=100_000, description="widths that are known ahead: 16:10m,64:5m,16:20m")
    ] = None
    best_effort: Annotated[
        bool | None, Field(description="its widths are asked for as they come, and none is queued ahead")
    ] = None
    restartable: bool | None = None
    rerunnable: Annotated[bool | None, Field(description="it may be run again from its beginning")] = None
    hold: bool | None = None
    settings: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=1024)] | bool | int | float],
        Field(max_length=64, description="what `#EJB` knows, by name: also what the queue's policy lets a job say"),
    ] = {}
    options: Annotated[
        list[Annotated[str, Field(max_length=4096)]],
        Field(max_length=1000, fail_fast=True, description="further options of sbatch as words, e.g. --mem=4G"),
    ] = []


Limit = Literal["cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as"]


class JobSubmission(Body):
    """A job: a `script` (with `args`), or a `command`; exactly one of the two."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"cwd": "/", "command": ["hostname"], "overrides": {"ntasks": 2, "time": "5"}},
                {"cwd": "/", "script": "#!/bin/sh\n#SBATCH -n 4 -t 10\nsrun hostname\n", "script_name": "hosts.sh"},
            ]
        }
    )

    cwd: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="absolute path of the working directory",
            examples=["/"],
            json_schema_extra={"pattern": "^/"},
        ),
    ]
    script: Annotated[str | None, Field(description="the text of a batch script with its #SBATCH and #EJB lines")] = (
        None
    )
    script_name: Annotated[str, Field(max_length=4096, description="what the job is called by default")] = "job"
    args: Words = []
    command: Words | None = None
    env: Annotated[
        dict[str, str], Field(max_length=MOST_WORDS, fail_fast=True, description="the submitter's environment")
    ] = {}
    script_path: Annotated[
        str | None, Field(max_length=4096, description="absolute path of the file that holds the script, if one does")
    ] = None
    umask: Annotated[int | None, Field(ge=0, le=0o777, description="the submitter's")] = None
    limits: Annotated[
        dict[Limit, Annotated[int, Field(ge=-1, le=2**63 - 1)]],
        Field(
            fail_fast=True, description="the submitter's soft resource limits in the units of setrlimit; -1: unlimited"
        ),
    ] = {}
    overrides: OverridesBody = OverridesBody()
    numbered: Annotated[
        bool, Field(description="its user knows it by its number: without one that is named its output is slurm-%j.out")
    ] = False


class SignalRequest(Api):
    """A signal for a job, by its name or number."""

    signal: Annotated[str, Field(max_length=16, examples=["USR1"])]
    to: Annotated[
        Literal["ranks", "script", "all"], Field(description="its ranks, the shell of its script, or both")
    ] = "ranks"


class EvolveRequest(Api):
    """What is to come of an evolving job."""

    tail: Annotated[str, Field(max_length=4096, examples=["now:64,+30m:128"])]
    dry_run: Annotated[bool, Field(description="say what would come, and change nothing")] = False


class ResizeRequest(Api):
    """The places that an evolving job is to have from now to its end."""

    to: Annotated[int | None, Field(ge=1, le=10**7, description="null: what it holds throughout")] = None
    by: Annotated[
        int | None, Field(ge=-(10**7), le=10**7, description="so many more than now, or less, instead of `to`")
    ] = None
    key: Annotated[str, Field(max_length=128, description="a request with a key that was seen before is that one")] = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.to is not None and self.by is not None:
            raise ValueError("`to` and `by` exclude each other")
        return self


class EvolvingCourse(Api):
    """The widths of an evolving job: what each step lasts (seconds) and has (places), and when it begins."""

    steps: list[tuple[float, int]]
    starts_s: list[float]
    end_s: float
    base: Annotated[int, Field(description="places that are held throughout")]


class JobCreated(Api):
    """The job that was stored."""

    id: str
    name: str
    created: Annotated[bool, Field(description="false: it was answered before under the same Idempotency-Key")]
    elastic: Annotated[bool, Field(description="false: it is passed through to the batch system as an ordinary job")]
    why: Annotated[str, Field(description="why it is elastic, or is not")]
    notes: Annotated[list[str], Field(description="what is not acted on, cannot be had, or was not checked")]

    def status_and_headers(self) -> tuple[int, dict[str, str]]:
        """What goes with it in an answer."""
        return 201 if self.created else 200, {"Location": f"/v1/jobs/{self.id}"}


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
    with nothing done yet. Without a further stretch behind it the job is done, unless `end_s` is null.
    """

    kind: PlannedKind
    start_s: float
    end_s: Annotated[float | None, Field(description="null: nothing is planned behind it")]
    processors: int
    degree: Annotated[int, Field(description="of over-subscription, while ranks run; 0 otherwise")]
    on_placeholder: Annotated[bool, Field(description="J0 is what it runs on")]


_DELTAS = "Delta at each degree at which the application was measured, the lowest first"
_OVERHEADS = "what a start and an end cost beside lambda, as far as is known"
_PLANNED = "what is to come, by the plan as it stands; empty: nothing is planned"


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
    why: Annotated[str, Field(description="why the present launch is not run by the profile; empty: it is")]


_APPLICATION = "null: of a job that keeps its number of ranks"


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
    planned: Annotated[list[PlannedView], Field(description=_PLANNED)] = []
    free_ahead: Annotated[
        list[tuple[float, int]],
        Field(description="of an evolving job what it was fitted into: times, and processors free from then on"),
    ] = []
    cost: Annotated[MoveCost | None, Field(description="what a move of it would cost, as far as is known")] = None
    penalty: Annotated[Penalty | None, Field(description="Delta as it would be planned with")] = None
    deltas: Annotated[list[DeltaView], Field(description=_DELTAS)] = []
    overheads: Annotated[Overheads | None, Field(description=_OVERHEADS)] = None
    placeholder: PlaceholderShape | None
    walltimes: Annotated[WalltimesView | None, Field(description="null: its own walltime is asked for")] = None
    application: Annotated[ApplicationView | None, Field(description=_APPLICATION)] = None
    notes: list[str]


class SubjobView(Api):
    """One batch job of an elastic job."""

    id: str
    ordinal: int
    role: SubjobRole
    state: SubjobState
    batch_id: str | None
    processors: int
    walltime_s: float
    nodes: list[str]
    member: Annotated[bool, Field(description="whether ranks are wanted on it")]
    planned_start_s: float | None
    start_s: float | None
    end_s: Annotated[float | None, Field(description="planned while it runs, actual afterwards")]
    reason: str
    elements: Annotated[dict[str, int] | None, Field(description="of an array: how many are in each state")] = None
    processor_s: Annotated[
        float | None, Field(description="processor-seconds that it is charged so far; null: of an array, not known")
    ] = None


class JobView(Api):
    """A job in a list."""

    id: str
    name: str
    user: str
    queue: str
    state: JobState
    elastic: bool
    kind: JobKind
    engine: str
    processes: int
    processors: Annotated[int, Field(description="that it holds now")]
    walltime_s: float
    held: bool
    submit_s: float
    start_s: float | None
    end_s: float | None
    rigid_start_s: Annotated[float | None, Field(description="the start that the batch system first promised")]
    expected_completion_s: float | None
    progress: Annotated[float, Field(description="share of the walltime's work that is done, 0 to 1 (Eq. 3)")]
    exit_code: int | None
    reason: str
    number: Annotated[
        str | None,
        Field(description="SLURM_JOB_ID: its first J0's, or one of EJB's own; null: none was given yet"),
    ] = None
    nodes: Annotated[list[str], Field(description="that it holds; of a job that has ended: all that it had")] = []
    array: Annotated[str | None, Field(description="of an element: the array that it is of")] = None
    array_number: Annotated[str | None, Field(description="of an element: SLURM_ARRAY_JOB_ID")] = None
    index: Annotated[int | None, Field(description="of an element: which it is")] = None
    elements: Annotated[
        dict[str, int] | None, Field(description="of an array: how many elements are in each state, or to come")
    ] = None
    batch_ids: Annotated[list[str], Field(description="the batch jobs that were made for it, in their order")] = []
    processor_s: Annotated[
        float | None, Field(description="processor-seconds of all of them together; null: not known of one of them")
    ] = None


class JobDetail(JobView):
    """A job with all that belongs to it."""

    element_indices: Annotated[
        dict[str, str] | None, Field(description="of an array: which elements are in which state, as --array has them")
    ] = None
    cwd: str
    command: list[str]
    settings: Annotated[
        dict[str, str], Field(description="parameters of the queue's policy in the job's own words, by their keys")
    ] = {}
    incarnation: int
    alone_processor_s: Annotated[
        float | None,
        Field(description="processor-seconds that its work so far comes to at full width; null: passed through"),
    ] = None
    subjobs: list[SubjobView]


class JobPage(Api):
    """Jobs, newest first."""

    jobs: list[JobView]
    next: Annotated[int | None, Field(description="`before` of the next page; null: this is the last")]


class EventView(Api):
    """Something that happened."""

    id: int
    at_s: float
    job: str | None
    subjob: str | None
    kind: str
    data: dict[str, Any]


class EventPage(Api):
    """Events, oldest first. The next page is the one after the last id of this one."""

    events: list[EventView]


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
    decisions: list[PastDecision]
    present: dict[str, Any] | None
    planned: Annotated[list[PlannedView], Field(description=_PLANNED)] = []
    cost: Annotated[MoveCost | None, Field(description="what a move costs, as planning sees it now")] = None
    penalty: Annotated[Penalty | None, Field(description="Delta, as planning sees it now")] = None
    deltas: Annotated[list[DeltaView], Field(description=_DELTAS)] = []
    overheads: Annotated[Overheads | None, Field(description=_OVERHEADS)] = None
    checkpoints: Annotated[CheckpointInterval | None, Field(description="null: of a job that is passed through")] = None
    movable: Annotated[Movability | None, Field(description="null: of a job that is passed through")] = None
    moves: Annotated[list[MoveView], Field(description="the application's latest moves, newest first")] = []
    speeds: Annotated[list[SpeedView], Field(description="how fast it got on of late, newest first")] = []
    runs: Annotated[list[RunView], Field(description="its latest runs that ended well, newest first")] = []
    walltimes: Annotated[WalltimesView | None, Field(description="null: its own walltime was asked for")] = None
    application: Annotated[ApplicationView | None, Field(description=_APPLICATION)] = None


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
    seen_to_running_s: Annotated[float | None, Field(description="from the poll that saw the last new subjob")]
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
    planned: Annotated[list[PlannedView], Field(description=_PLANNED)] = []
    subjobs: list[SubjobView]


class QueuePauseView(Api):
    """Why and until when EJB leaves a queue alone."""

    what: Annotated[
        Literal["submissions", "starts", "promises"],
        Field(description="what keeps failing; `promises`: elastic jobs end later than J0 could hope to"),
    ]
    whose: Annotated[str, Field(description="for a limit of this user's in this account (`user/account`); empty: all")]
    reason: str
    failures: Annotated[int, Field(description="in a row")]
    since_s: Annotated[float, Field(description="the first of them")]
    until_s: Annotated[float, Field(description="when it is tried again")]


class QueueWindowView(Api):
    """Settings that hold in a window of the week."""

    when: Annotated[str, Field(description="days, beginning and end", examples=["mon-fri 20:00-08:00"])]
    settings: dict[str, Any]
    in_force: Annotated[bool, Field(description="as of the last poll")]
    changed_s: float
    changed_by: str


class CalendarView(Api):
    """The windows of a queue; where two meet, the later one in the list is on top."""

    time_zone: Annotated[str, Field(description="by which clock")]
    windows: list[QueueWindowView]
    until_s: Annotated[float | None, Field(description="the next edge at which settings change; null: never")]


class QueueView(Api):
    """A queue and its elasticity."""

    name: str
    up: bool
    settings: Annotated[SerializeAsAny[QueueSettings], WithJsonSchema(settings_schema())]
    overridden: Annotated[list[str], Field(description="settings that were changed at run time")]
    waiting: int
    running: int
    elastic_now: bool
    paused: list[QueuePauseView]
    calendar: CalendarView


def _check_changes(changes: dict[str, Any]) -> dict[str, Any]:
    try:
        check_changes(changes)
    except ValidationError as error:
        first = error.errors()[0]
        raise PydanticCustomError(
            "setting", "{what}", {"what": ": ".join([*(str(part) for part in first["loc"][:1]), first["msg"]])}
        ) from None
    return changes


QueueChanges = Annotated[
    dict[str, Any],
    AfterValidator(_check_changes),
    WithJsonSchema(changes_schema()),
]
"""Settings of a queue; null goes back to what the configuration says."""


class Queues(Api):
    queues: list[QueueView]


class Closed(Api):
    """Nodes that are not used now, whatever is idle there: a reservation, or a drain of EJB's (`ejb drain`)."""

    what: str
    name: str
    nodes: str
    until_s: Annotated[float | None, Field(description="null: not known")]


class KeptFor(Api):
    """A job of the batch system that waits, and that elastic jobs have given room back to."""

    job: str
    user: str


class Window(Api):
    """Processors that jobs of a queue may use now without delaying others.

    `by`: what says so, where the batch system leaves a choice; "" elsewhere. `blind`: why no window is used though
    processors are free. The batch system hides the jobs of others; "" where it does not. `kept_for`: the jobs that are
    to have room that elastic jobs have given back. Until they have started, no elastic job takes any of the slots.
    """

    queue: str
    at_s: float
    slots: list[Slot]
    closed: list[Closed] = []
    free: int
    total: int
    by: str = ""
    blind: str = ""
    kept_for: KeptFor | None = None


class Windows(Api):
    windows: list[Window]


class TokenRequest(Api):
    """What a new bearer token is for, and for how long it is good.

    `scope`: `read` looks only, `submit` (formerly `jobs`) also submits and steers its user's own jobs. `operate` and
    `admin` do what operators and administrators may, as far as its user is one when it is shown.
    """

    label: Annotated[str, Field(max_length=200, pattern=PLAIN)] = ""
    expires_in_s: Annotated[float, Field(gt=0, le=366 * 86400, allow_inf_nan=False)] = 30 * 86400.0
    scope: Scope = Scope.SUBMIT


class TokenView(Api):
    """A bearer token without its secret."""

    id: str
    user: str
    label: str
    created_s: float
    expires_s: float
    scope: Scope


class NewToken(TokenView):
    """A new bearer token. The secret is shown this once."""

    token: str


class Tokens(Api):
    tokens: list[TokenView]


class Health(BaseModel):
    """Whether the daemon does its work; further fields say how."""

    model_config = ConfigDict(extra="allow")

    ok: Annotated[bool, Field(description="always true here: what is not well is told as a problem, with status 503")]


class Version(Api):
    version: str
    worker_protocol: str
