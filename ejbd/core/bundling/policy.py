"""Elastic job bundling as a policy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from ejbd.core.bundling import giving, handlers
from ejbd.core.bundling.beyond import plan_beyond
from ejbd.core.bundling.candidates import visit_key
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.decision import Decision
from ejbd.core.lending import Borrower, Lending
from ejbd.core.parameters import Parameters
from ejbd.core.policy import QueuePolicy, register
from ejbd.core.shapes import BackfillSlot
from ejbd.core.state import ElasticState


@register
class Bundling(QueuePolicy):
    """The paper's handlers (`handlers`). A policy that differs from it in some answers is a subclass of it."""

    name = "bundling"
    declares: ClassVar[type[Parameters]] = BundlingParameters
    parameters: BundlingParameters

    @property
    def suspends(self) -> bool:
        return self.parameters.suspend

    @property
    def acts_in_move(self) -> bool:
        return self.parameters.act_in_move

    def visit_key(self, waiting: bool, processes: int, work_left_s: float) -> tuple[float, float]:
        return visit_key(waiting, processes, work_left_s, self.parameters.rules)

    def waits(self, state: ElasticState, slots: Sequence[BackfillSlot], now: float) -> Decision:
        return handlers.plan_wait(state, slots, now, self.parameters)

    def runs(self, state: ElasticState, slots: Sequence[BackfillSlot], now: float) -> Decision:
        return handlers.plan_running(state, slots, now, self.parameters)

    def placeholder_started(self, state: ElasticState, now: float) -> Decision:
        return handlers.plan_placeholder_start(state, now, self.parameters)

    def subjob_ends(self, state: ElasticState, now: float) -> Decision:
        return handlers.plan_leaving(state, now, self.parameters)

    def borrows(self, state: ElasticState, now: float) -> Borrower | None:
        return giving.borrowed(state, now, self.parameters)

    def folds(self, state: ElasticState, lent: Collection[str], now: float) -> Borrower | None:
        return giving.folded(state, lent, now, self.parameters)

    def asked_back(self, state: ElasticState, lending: Lending, now: float) -> Decision:
        return giving.plan_giving_back(state, lending, now, self.parameters)

    def beyond(self, state: ElasticState, now: float) -> Decision:
        return plan_beyond(state, now, self.parameters)

    def ended(self, state: ElasticState, now: float, outcome: str) -> Decision:
        return handlers.plan_completion(state, now, outcome)
