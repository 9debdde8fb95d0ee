"""Jobs, their subjobs and their events."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    Field,
)

from ejbd.api.models.base import Api
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import JobKind, SubjobRole


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


class LaunchHeldView(Api):
    """A launch of a script with stages: `#EJB stages`."""

    ordinal: int
    ranks: int
    wait_s: Annotated[float, Field(description="until its width was there, and its ranks ran")]
    run_s: Annotated[float, Field(description="that its ranks have run")]
    beside_processor_s: Annotated[float, Field(description="held for it, beside the script's own place")]
    code: Annotated[int | None, Field(description="its exit code; null: it has not ended")]


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
    exit_signal: Annotated[
        int | None, Field(description="that ended its script; exit_code is 128 + it then, as of a script's `exit`")
    ] = None
    final_state: Annotated[
        JobState | None, Field(description="of a job that is `ending`: what it will become, as far as is known")
    ] = None
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


class StepView(Api):
    """A launch of an elastic job's ranks, as Slurm has a step."""

    ordinal: Annotated[int, Field(description="which launch of its script it is")]
    name: Annotated[str, Field(description="the base name of its program; empty where its worker did not tell it")]
    ranks: int
    start_s: float | None
    end_s: float | None
    code: Annotated[int | None, Field(description="null: it has not ended")]


class JobDetail(JobView):
    """A job with all that belongs to it."""

    most_at_once: Annotated[
        int | None, Field(description="of an array: how many elements may run at once; null: no limit of its own")
    ] = None
    output: Annotated[str | None, Field(description="where its output goes, %j and the like as they were written")] = (
        None
    )
    error: Annotated[str | None, Field(description="null: where its output goes")] = None
    steps: Annotated[list[StepView], Field(description="its launches, in their order")] = []
    element_indices: Annotated[
        dict[str, str] | None, Field(description="of an array: which elements are in which state, as --array has them")
    ] = None
    cwd: str
    script: Annotated[str | None, Field(description="the file of its script, with a path; null: it had none")] = None
    command: list[str]
    settings: Annotated[
        dict[str, str], Field(description="parameters of the queue's policy in the job's own words, by their keys")
    ] = {}
    incarnation: int
    alone_processor_s: Annotated[
        float | None,
        Field(description="processor-seconds that its work so far comes to at full width; null: passed through"),
    ] = None
    launches: Annotated[list[LaunchHeldView], Field(description="of a script with stages, in their order")] = []
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
