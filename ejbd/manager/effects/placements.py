"""Effects on epochs: placements of the ranks of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ejbd.manager.effects.base import Effect
from ejbd.store.models import Epoch
from ejbd.store.states import EpochState


@dataclass(frozen=True, slots=True)
class MoveEpoch(Effect):
    """A placement is in another state. `code`: an EpochCode. `setback`: nothing was stopped, so it runs on."""

    epoch: Epoch
    state: EpochState
    reason: str = ""
    code: str = ""
    setback: bool = False
    data: Mapping[str, Any] | None = None  # more for its event
