"""What is known of turns from one poll to the next (:mod:`ejbd.manager.poll.turns`). No reader is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ejbd.core.alongside import Alongside


@dataclass
class Turns:
    """Shadows by the queues that share nodes. `refused`: J0s that cannot be kept from beginning. `begun`: batch jobs
    that are not elastic, and when they began. `rows`: elastic jobs as they were last. `said`: J0s that stay, and when
    the batch system was last told so."""

    shadows: dict[frozenset[str], Alongside] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    begun: dict[str, float] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    said: dict[str, float] = field(default_factory=dict)

    def shift(self) -> None:
        """The clock was set: times of before mean nothing."""
        self.shadows.clear()
        self.begun.clear()
        self.said.clear()
