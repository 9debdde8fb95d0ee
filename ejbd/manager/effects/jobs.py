"""Effects on a job: its state, where it is wanted, and the work that it has done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ejbd.manager.effects.base import Effect, Effects
from ejbd.store.models import Job
from ejbd.store.states import JobState

if TYPE_CHECKING:  # a job's world holds the context, and that the subscribers, which are rules
    from ejbd.manager.facts.jobworld import JobWorld


@dataclass(frozen=True, slots=True)
class MoveJob(Effect):
    """The job is in another state. `setback`: in an earlier one. `data`: more for its event."""

    job: Job
    state: JobState
    reason: str = ""
    setback: bool = False
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Want(Effect):
    """The subjobs on which the job's ranks are wanted from now on (`job.members`)."""

    job: Job
    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rate(Effect):
    """From now on the job does `rate` full-speed seconds a second; what it has done is kept (Eq. 3)."""

    job: Job
    rate: float


@dataclass(frozen=True, slots=True)
class LoseWork(Effect):
    """What the job has done beyond `kept_s` (full-speed seconds) is lost, and nothing of it runs now."""

    job: Job
    kept_s: float


@dataclass(frozen=True, slots=True)
class In(Effect):
    """An effect, or what a rule asks for, in the world of one job: for rules about the whole site."""

    world: JobWorld
    asked: Effect | Effects[Any]


@dataclass(frozen=True, slots=True)
class Apart(Effect):
    """Run a rule about one job in a savepoint of its own: a fault of it undoes, and stops, nothing but itself."""

    world: JobWorld
    rule: Callable[[JobWorld], Effects[Any]]
