"""What a poll reads of each open job and subjob (:mod:`ejbd.manager.facts.listing.roster`).

They are tuples of our own, since each poll looks at each of them several times. An attribute of SQLAlchemy's row takes
several times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class JobRow(NamedTuple):
    """What is read of a job."""

    seq: int
    id: str
    user: str
    account: str
    qos: str
    queue: str
    state: str
    elastic: bool
    kind: str
    engine: str
    application: str
    processes: int
    walltime_s: float
    held: bool
    start_s: float | None
    work_s: float
    work_rate: float
    work_as_of_s: float | None
    members_text: str
    script_run: int
    not_before_s: float
    rigid_start_s: float | None
    decision_key: str


class SubjobRow(NamedTuple):
    """What is read of a subjob."""

    id: str
    job_id: str
    ordinal: int
    role: str
    tag: str
    batch_id: str | None
    state: str
    processors: int
    walltime_s: float
    usable_s: float
    anchor: bool
    created_s: float
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    planned_start_s: float | None
    heard_s: float | None
    exit_code: int | None
    reason: str
    missing_since_s: float | None
    leave_by_s: float | None
    warned_s: float | None
    elements: dict[str, Any] | None
    releasing: bool
    stays: bool
    joined: bool
    told_submit_s: float | None
