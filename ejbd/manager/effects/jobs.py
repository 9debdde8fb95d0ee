"""Effects on a job: its state, where it is wanted, and the work that it has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ejbd.manager.effects.base import Effect
from ejbd.store.states import JobState


@dataclass(frozen=True, slots=True)
class MoveJob(Effect):
    """The job is in another state. `setback`: in an earlier one."""

    state: JobState
    reason: str = ""
    setback: bool = False


@dataclass(frozen=True, slots=True)
class Want(Effect):
    """The subjobs on which the job's ranks are wanted from now on (`job.members`)."""

    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rate(Effect):
    """From now on the job does `rate` full-speed seconds a second; what it has done is kept (Eq. 3)."""

    rate: float


@dataclass(frozen=True, slots=True)
class LoseWork(Effect):
    """What the job has done beyond `kept_s` (full-speed seconds) is lost, and nothing of it runs now."""

    kept_s: float
