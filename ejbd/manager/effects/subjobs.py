"""Effects on subjobs, and on the intents by which they come to the batch system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from ejbd.manager.effects.base import Effect
from ejbd.store.models import Subjob
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import IntentKind, SubjobRole


@dataclass(frozen=True, slots=True)
class MoveSubjob(Effect):
    subjob: Subjob
    state: SubjobState
    reason: str = ""
    setback: bool = False
    data: Mapping[str, Any] | None = None  # more for its event


@dataclass(frozen=True, slots=True)
class Ask(Effect):
    """Plan a subjob of so many places, and answer its row. Its ranks may run for `length_s` (seconds).

    Up to `slack_s` more is asked for, and never more than `limit_s`. It is submitted not before `delay_s` from now.
    """

    role: SubjobRole
    places: int
    length_s: float
    slack_s: float = 0.0
    limit_s: float = inf
    anchor: bool = False
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AskWhole(Effect):
    """Plan the job's whole batch job, J0 or what is passed through, not before `delay_s` from now. Answers its row."""

    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Release(Effect):
    """Give a subjob back: its workers leave; one that never started, or does not leave, is cancelled."""

    subjob: Subjob
    why: str


@dataclass(frozen=True, slots=True)
class ReleaseAtEnd(Effect):
    """Give a subjob back at the end of its job: a J0 ends as the job did."""

    subjob: Subjob
    why: str


@dataclass(frozen=True, slots=True)
class SetAside(Effect):
    """The job goes on without J0, which has started; off its processors it keeps the job's number."""

    j0: Subjob
    why: str


@dataclass(frozen=True, slots=True)
class Act(Effect):
    """Store an intent: one action on the batch system, not before `delay_s` from now. Answers its row."""

    kind: IntentKind
    job_id: str
    subjob: Subjob | None = None
    batch_id: str | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SubmitNow(Effect):
    """What the batch system refused of a queue is due at once: of `whose` (`user/account/QOS`) alone, or of all."""

    queue: str
    whose: str
