"""What a policy was asked: everything that its answer depends on, as one value.

The manager stores each question beside the decision, so that the simulator can ask again and compare (replay).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Self

from ejbd.core.decision import Decision, no_room
from ejbd.core.lending import Lending, Standing
from ejbd.core.malleable.pool import Pool
from ejbd.core.parameters import Parameters
from ejbd.core.policy import Policy, Situation, policy_named
from ejbd.core.room.place import Place
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob

BUNDLING = "bundling"
_STATE_BEFORE = {"together": "node_limit"}  # fields of a state by the names that they had in logs of before


@dataclass(frozen=True, slots=True)
class Question:
    """One job's state, the slots that can be used at `now_s` (absolute seconds), the policy and its parameters.

    `outcome`: how the application has ended, where that is asked about. `lending`: which jobs wait and which borrow,
    where a job may have to give back what it holds. `stands`: the batch job that it is in the way of, where it may be
    by a limit. `place`: of its J0, where what its subjobs use may cost that. `pool`: what runs in the pool in which the
    job waits or runs, and what is free there.
    """

    situation: Situation
    state: ElasticState
    slots: tuple[BackfillSlot, ...]
    now_s: float
    parameters: Parameters
    policy: str = BUNDLING
    outcome: str = ""
    lending: Lending | None = None
    stands: Standing | None = None
    place: Place | None = None
    pool: Pool | None = None

    def answer(self) -> Decision:
        """Ask the policy, but not for a start on nothing. Raises LookupError where there is none of that name."""
        decision = self._answer()
        return decision if self.place is None else self.place.weighed(decision, self.state, self.parameters)

    def _answer(self) -> Decision:
        if self.situation is Situation.WAIT and not self.slots:
            return no_room(self.state.job, self.now_s)
        return policy_named(self.policy)(self.parameters).answer(self)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what has no end becomes None (null)."""
        return {
            "situation": self.situation.value,
            "state": _state(self.state),
            "slots": [_plain(slot) for slot in self.slots],
            "now_s": self.now_s,
            "parameters": self.parameters.to_json(),
            "policy": self.policy,
            "outcome": self.outcome,
            **({} if self.lending is None else {"lending": self.lending.to_json()}),
            **({} if self.stands is None else {"stands": self.stands.to_json()}),
            **({} if self.place is None else {"place": self.place.to_json()}),
            **({} if self.pool is None else {"pool": self.pool.to_json()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The question that `to_json` wrote. Raises LookupError, TypeError or ValueError where `data` is not one."""
        state = {_STATE_BEFORE.get(key, key): value for key, value in data["state"].items()}
        state["subjobs"] = tuple(HeldSubjob(**_endless(held, "end_s")) for held in state["subjobs"])
        policy = data.get("policy", BUNDLING)  # logs of before knew one policy
        return cls(
            Situation(data["situation"]),
            ElasticState(**state),
            tuple(BackfillSlot(**_endless(slot, "duration_s")) for slot in data["slots"]),
            data["now_s"],
            policy_named(policy).declares.from_json(data["parameters"]),
            policy,
            data.get("outcome", ""),
            Lending.from_json(data["lending"]) if data.get("lending") else None,
            Standing.from_json(data["stands"]) if data.get("stands") else None,
            Place.from_json(data["place"]) if data.get("place") else None,
            Pool.from_json(data["pool"]) if data.get("pool") else None,
        )


def ask(policy: Policy, situation: Situation, state: ElasticState, now_s: float, *, outcome: str = "") -> Decision:
    """What a policy that is at hand answers where no slots are asked about."""
    return policy.answer(Question(situation, state, (), now_s, policy.parameters, policy.name, outcome))


def _state(state: ElasticState) -> dict[str, Any]:
    told: dict[str, Any] = _plain(state)
    if state.expected_left_s is None:
        del told["expected_left_s"]
    if not state.alone:  # few jobs may grow
        del told["alone"]
    return told


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
