"""Doors from one room of rules to another: the rule behind a door runs in place, and its effects with it.

Which rule that is stands in :mod:`ejbd.manager.acts.carrying`: no room of rules imports another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ejbd.manager.effects.base import Effect
from ejbd.manager.effects.ends import End, Outcome
from ejbd.store.models import Epoch, Subjob, Worker
from ejbd.store.states import JobState
from ejbd.wire.kinds import EpochCode

# -- rules/ends -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conclude(Effect):
    """Something has ended. Answers what becomes of it (an :class:`~ejbd.manager.effects.ends.Outcome`), which is done
    as far as it concerns the whole job: an `Again` that is not `whole` is left to the rule that asks."""

    end: End


@dataclass(frozen=True, slots=True)
class Consult(Effect):
    """Ask the subscribers what becomes of an end, each in a savepoint of its own. Answers the outcome."""

    end: End
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class EndJob(Effect):
    """The job is over, whatever still runs."""

    state: JobState
    exit_code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class StopRanks(Effect):
    """TERM to the ranks of a placement, and KILL after `grace_s` seconds (None: the batch system's own)."""

    epoch: Epoch
    grace_s: float | None = None


# -- rules/placements -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advance(Effect):
    """Do everything that can be done now for one elastic job."""


@dataclass(frozen=True, slots=True)
class BeginCheckpoint(Effect):
    """Checkpoint the ranks of a placement, and stop them."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class FailEpoch(Effect):
    """Give a placement up, and go back to the last checkpoint (ejbd.manager.rules.placements.setbacks)."""

    epoch: Epoch
    code: EpochCode
    why: str
    members: Sequence[str] | None = None
    theirs: bool = False
    engines: bool = False


@dataclass(frozen=True, slots=True)
class StartOver(Effect):
    """Give up what the present launch has done; the next placement begins it anew."""

    epoch: Epoch
    why: str


@dataclass(frozen=True, slots=True)
class BackToWaiting(Effect):
    """Nothing runs any more: wait for J0, or for another window, with the work of the last checkpoint."""

    why: str


@dataclass(frozen=True, slots=True)
class EnsurePlaceholder(Effect):
    """J0 is in the queue, or is asked for again, with pauses."""


@dataclass(frozen=True, slots=True)
class LostWorker(Effect):
    """A worker is gone, and its ranks with it. `left_s`: when it left by its own word (absolute seconds)."""

    worker: Worker
    why: str
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class LeaveSubjob(Effect):
    """A subjob has ended: nothing is wanted there. `said`: the batch system's word, where it says more."""

    subjob: Subjob
    said: str = ""


@dataclass(frozen=True, slots=True)
class GiveUp(Effect):
    """The workers of a subjob end what runs there, and leave; a placement on it is over."""

    subjob: Subjob
    why: str


@dataclass(frozen=True, slots=True)
class CameToNothing(Effect):
    """A subjob is over, or given up, before a placement ran on it: no other before a pause that grows."""

    subjob: Subjob
    why: str
    started: bool = True
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndByTime(Effect):
    """The job has used up its time, in the batch job `home`."""

    home: Subjob
