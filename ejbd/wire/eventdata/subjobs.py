"""What events of subjobs, J0 among them, and of actions on the batch system hold. NotRequired: only sometimes there."""

# Without `from __future__ import annotations`, which would hide from typing which fields are not required.

from typing import NotRequired, TypedDict

from ejbd.wire.eventdata.common import Step
from ejbd.wire.kinds import IntentKind, SubjobRole


class Staying(TypedDict):
    """A sentence, and its code."""

    reason: str
    code: str


class EndsAsJob(TypedDict):
    """`reduced`: J0 was made so small that it begins soon. `reason`: why it was not, else ""."""

    code: int
    reduced: bool
    reason: str


class SubjobPlanned(TypedDict):
    """What will be asked of the batch system. Ranks may use `usable_s` of the walltime."""

    role: SubjobRole
    processors: int
    walltime_s: float
    usable_s: float


class SubjobAltered(TypedDict):
    """Its walltime as it was asked for, and as it is at the batch system now (null: as asked for again)."""

    asked_s: float
    walltime_s: float | None


class SubjobStep(Step):
    """Its id once it has one, its nodes once it runs, how its end was learnt (`source`)."""

    batch_id: NotRequired[str | None]
    nodes: NotRequired[list[str]]
    source: NotRequired[str]
    exit_code: NotRequired[int | None]


class Stray(TypedDict):
    """A batch job that bears the tag of a subjob and is not the one that EJB knows. It is cancelled."""

    batch_id: str


class Lookalike(TypedDict):
    """A batch job that bears the tag of a subjob and was submitted by its user, not by EJB: it is left alone."""

    batch_id: str


class Rerun(TypedDict):
    """A passed-through job that had ended and that the batch system runs again: it is left alone."""

    batch_id: str


class SubjobWarned(TypedDict):
    """The batch system will end it before its time."""

    end_s: float


class PlaceholderPlanned(TypedDict):
    """The start that the batch system first promised to J0."""

    start_s: float


class PlaceholderAgain(TypedDict):
    """J0 is asked for again after `pause_s`."""

    setbacks: int
    pause_s: float
    reason: str


class IntentStep(Step):
    """An action on the batch system: `number` tells it from others, `attempt` counts, `how` its id was found."""

    intent: IntentKind
    number: int
    attempt: NotRequired[int]
    batch_id: NotRequired[str | None]
    how: NotRequired[str]
