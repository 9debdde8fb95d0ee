"""Effects on launches, and on epochs: placements of their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ejbd.manager.effects.base import Effect
from ejbd.store.models import Epoch
from ejbd.store.states import EpochState


@dataclass(frozen=True, slots=True)
class BeginLaunch(Effect):
    """The application is to run: a command's one launch, or one launch line of a script. Answers its row.

    `together`: a rank that fails ends the others.
    """

    ordinal: int
    size: int
    file: str
    together: bool = True


@dataclass(frozen=True, slots=True)
class BeginEpoch(Effect):
    """A placement of all ranks begins, with these columns of its row. Answers the row."""

    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MoveEpoch(Effect):
    """A placement is in another state. `code`: an EpochCode. `setback`: nothing was stopped, so it runs on."""

    epoch: Epoch
    state: EpochState
    reason: str = ""
    code: str = ""
    setback: bool = False
    data: Mapping[str, Any] | None = None  # more for its event
