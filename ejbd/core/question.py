"""What a policy was asked: everything that its answer depends on, as one value.

The manager stores each question beside the decision, so that the simulator can ask again and compare (replay).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any, Self

from ejbd.core.bundling.handlers import plan_placeholder_start, plan_running, plan_wait
from ejbd.core.bundling.one_node import plan_running_together, plan_wait_together
from ejbd.core.bundling.plan import BundlingParameters, ElasticState, HeldSubjob
from ejbd.core.decision import Decision
from ejbd.core.shapes import UNLIMITED, BackfillSlot


class Situation(StrEnum):
    """Which of the paper's handlers is asked (section 3.2)."""

    WAIT = "wait"
    RUNNING = "running"
    PLACEHOLDER_STARTED = "placeholder_started"


@dataclass(frozen=True, slots=True)
class Question:
    """One job's state, the slots that can be used at `now_s` (absolute seconds), and the queue's parameters."""

    situation: Situation
    state: ElasticState
    slots: tuple[BackfillSlot, ...]
    now_s: float
    parameters: BundlingParameters

    def answer(self) -> Decision:
        """Ask the policy."""
        if self.state.together is not None and self.situation is Situation.WAIT:
            return plan_wait_together(self.state, self.slots, self.now_s, self.parameters)
        if self.state.together is not None and self.situation is Situation.RUNNING:
            return plan_running_together(self.state, self.slots, self.now_s, self.parameters)
        if self.situation is Situation.WAIT:
            return plan_wait(self.state, self.slots, self.now_s, self.parameters)
        if self.situation is Situation.RUNNING:
            return plan_running(self.state, self.slots, self.now_s, self.parameters)
        return plan_placeholder_start(self.state, self.now_s, self.parameters)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what has no end becomes None (null)."""
        return {
            "situation": self.situation.value,
            "state": _plain(self.state),
            "slots": [_plain(slot) for slot in self.slots],
            "now_s": self.now_s,
            "parameters": _plain(self.parameters),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The question that `to_json` wrote. Raises KeyError, TypeError or ValueError where `data` is not one."""
        state = dict(data["state"])
        state["subjobs"] = tuple(HeldSubjob(**_endless(held, "end_s")) for held in state["subjobs"])
        endless = [f.name for f in fields(BundlingParameters) if f.default == UNLIMITED]
        return cls(
            Situation(data["situation"]),
            ElasticState(**state),
            tuple(BackfillSlot(**_endless(slot, "duration_s")) for slot in data["slots"]),
            data["now_s"],
            BundlingParameters(**_endless(data["parameters"], *endless)),
        )


def _plain(value: Any) -> Any:
    """JSON knows neither infinity nor tuples."""
    if isinstance(value, float) and math.isinf(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):  # not by `asdict`, which copies every value deeply
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _endless(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: UNLIMITED if key in names and value is None else value for key, value in data.items()}
