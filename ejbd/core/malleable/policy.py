"""FCFS-malleable as a policy: for pools and for the simulator. No job is folded in vain, and none passes the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ejbd.core.decision import Decision, DecisionKind, ReasonCode, SubjobRequest
from ejbd.core.malleable.folding import begin, half, spare, unfolded
from ejbd.core.malleable.parameters import MalleableParameters
from ejbd.core.malleable.pool import Pool, PoolJob
from ejbd.core.parameters import Parameters
from ejbd.core.policy import Policy, Situation, register
from ejbd.core.state import ElasticState

if TYPE_CHECKING:
    from ejbd.core.question import Question


@register
class FcfsMalleable(Policy):
    """Two questions: whether the head of a pool's queue starts, and on what; and whether a folded job is unfolded.

    In a queue it asks for nothing beside J0: what starts and is folded is for the pool below it to say.
    """

    name = "fcfs-malleable"
    declares: ClassVar[type[Parameters]] = MalleableParameters
    folds_jobs = True
    parameters: MalleableParameters

    def answer(self, question: Question) -> Decision:
        state, now, pool = question.state, question.now_s, question.pool
        if pool is not None and question.situation is Situation.HEADS:
            return self._heads(state, pool, now)
        if pool is not None and question.situation is Situation.FOLDED:
            return self._folded(state, pool, now)
        why = "it is a policy for pools: it starts the head of a pool's queue, and unfolds jobs"
        return Decision(DecisionKind.NOTHING, state.job, now, why)

    def in_order(self, running: tuple[PoolJob, ...]) -> list[PoolJob]:
        """Jobs in the order in which they are folded, and unfolded."""
        first = self.parameters.first
        places = {one.job: place for place, one in enumerate(running)}
        return sorted(running, key=lambda one: first.key(places[one.job], one.use, one.requested_s))

    def _heads(self, state: ElasticState, pool: Pool, now: float) -> Decision:
        """START, and what is folded for it; or NOTHING. A job that is not `movable` starts whole only."""
        folds = self.parameters.mpl > 1
        ordered = self.in_order(pool.running)
        may = [one for one in ordered if folds and one.folds and one.processors == one.processes > 1]
        found = begin(state.processes, pool.free, [spare(one.processes) for one in may], folds and state.movable)
        if found is None:
            least = half(state.processes) if folds and state.movable else state.processes
            why = f"it takes {least} processors at least, and not even with {len(may)} jobs folded are they free"
            return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.IN_VAIN)
        chosen = tuple(one.job for one in may[: found.folded])
        how = "whole" if found.processors == state.processes else f"folded onto {found.processors} processors"
        why = f"it starts {how}" + (f", once {', '.join(chosen)} are folded" if chosen else "")
        code = ReasonCode.FITS if found == (state.processes, 0) else ReasonCode.FOLDED
        request = SubjobRequest(found.processors, state.requested_s, 0)
        return Decision(DecisionKind.START, state.job, now, why, (request,), code=code, folds=chosen)

    def _folded(self, state: ElasticState, pool: Pool, now: float) -> Decision:
        """EXPAND, where no job waits and what this one gave is free, once those before it have theirs."""
        ordered = [one for one in self.in_order(pool.running) if one.processors < one.processes]
        places = unfolded(pool.free, [one.processes - one.processors for one in ordered]) if not pool.waiting else []
        if state.job in {ordered[place].job for place in places}:
            why = "no job waits, and the processors that it was folded away from are free"
            gave = next(one.processes - one.processors for one in ordered if one.job == state.job)
            request = SubjobRequest(gave, state.work_left_s, 0)
            return Decision(DecisionKind.EXPAND, state.job, now, why, (request,), code=ReasonCode.FITS)
        why = "jobs wait" if pool.waiting else "the processors that it was folded away from are not free"
        return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.NOT_FREE)
