"""The JSON of jobs and events as the REST API answers it; a test holds the API's own models to these.

Nothing but types: times are seconds since the epoch (UTC), durations are seconds.
"""

from __future__ import annotations

from typing import Any, TypedDict

from ejbd.wire.kinds import JobKind, SubjobRole
from ejbd.wire.states import JobState, SubjobState


class JobCreated(TypedDict):
    """The answer to a submission. `created` false: it was answered before under the same Idempotency-Key."""

    id: str
    name: str
    created: bool
    elastic: bool
    why: str
    notes: list[str]


class SubjobView(TypedDict):
    """One batch job of an elastic job."""

    id: str
    ordinal: int
    role: SubjobRole
    state: SubjobState
    batch_id: str | None
    processors: int
    walltime_s: float
    nodes: list[str]
    member: bool
    planned_start_s: float | None
    start_s: float | None
    end_s: float | None
    reason: str
    elements: dict[str, int] | None
    processor_s: float | None


class JobView(TypedDict):
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
    processors: int
    walltime_s: float
    held: bool
    submit_s: float
    start_s: float | None
    end_s: float | None
    rigid_start_s: float | None
    expected_completion_s: float | None
    progress: float
    exit_code: int | None
    exit_signal: int | None
    final_state: JobState | None
    reason: str
    number: str | None
    nodes: list[str]
    array: str | None
    array_number: str | None
    index: int | None
    elements: dict[str, int] | None
    batch_ids: list[str]
    processor_s: float | None


class LaunchHeldView(TypedDict):
    """A launch of a script with stages. `code` None: it has not ended."""

    ordinal: int
    ranks: int
    wait_s: float
    run_s: float
    beside_processor_s: float
    code: int | None


class StepView(TypedDict):
    """A launch of an elastic job's ranks, as Slurm has a step. `code` None: it has not ended."""

    ordinal: int
    name: str
    ranks: int
    start_s: float | None
    end_s: float | None
    code: int | None


class JobDetail(JobView):
    """A job with all that belongs to it."""

    most_at_once: int | None
    output: str | None
    error: str | None
    steps: list[StepView]
    element_indices: dict[str, str] | None
    cwd: str
    script: str | None
    command: list[str]
    settings: dict[str, str]
    incarnation: int
    alone_processor_s: float | None
    launches: list[LaunchHeldView]
    subjobs: list[SubjobView]


class EventView(TypedDict):
    """Something that happened; docs/events.md has the kinds and the `data` of each."""

    id: int
    at_s: float
    job: str | None
    subjob: str | None
    kind: str
    data: dict[str, Any]
