"""What use costs the place of a job that waits, where a site's fair share goes by use.

A subjob is charged to the account of its J0, and what that uses lowers J0's priority: a job of another account that is
planned behind it may go first. How much may be used until then is reckoned from the accounts' shares and use; what it
would cost is that job's walltime. A start that costs J0 more than it gains is not made (:meth:`Place.weighed`).

It is an estimate: use is reckoned in processors times time, and each account by itself, as if it stood below the root.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ejbd.core.decision import Decision, DecisionKind, ReasonCode
from ejbd.core.parameters import Parameters
from ejbd.core.state import ElasticState
from ejbd.core.timeline import PlannedKind
from ejbd.core.view import BatchJobView, BatchState, ClusterView, FairShare, Share


@dataclass(frozen=True, slots=True)
class Rival:
    """A job that goes before J0 once J0's account has used more than `left` processor seconds, for `delay_s`."""

    id: str
    user: str
    left: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """J0's place: when it is planned to start and to end, and which jobs may take it. `each`: processors of one place
    of the job, in which subjobs are planned."""

    starts_s: float
    ends_s: float
    rivals: tuple[Rival, ...]
    each: int = 1

    def weighed(self, decision: Decision, state: ElasticState, parameters: Parameters) -> Decision:
        """The decision to start or to expand; NOTHING where it costs the place more than it gains.

        A plan that is done by when J0 would be does not need the place.
        """
        if decision.kind not in (DecisionKind.START, DecisionKind.EXPAND):
            return decision
        done_s = decision.expected_completion_s
        if done_s is not None and done_s <= self.ends_s:
            return decision
        until_start_s = max(0.0, self.starts_s - decision.now_s)
        used = sum(one.processors * self.each * min(one.length_s, until_start_s) for one in decision.requests)
        rival = max((one for one in self.rivals if one.left < used), key=lambda one: one.delay_s, default=None)
        if rival is None:
            return decision
        gain_s = max(0.0, self._work_before(decision, state, parameters) - parameters.lambda_s)
        if gain_s >= rival.delay_s:
            return decision
        return Decision(
            DecisionKind.NOTHING,
            decision.job,
            decision.now_s,
            f"the {used:.0f} processor seconds that it would be charged for lower J0's priority by fair share: job "
            f"{rival.id} of {rival.user} would go first and cost J0 {rival.delay_s:.0f} s, and {gain_s:.0f} s would be "
            "gained",
            candidates=decision.candidates,
            slots=decision.slots,
            code=ReasonCode.COSTS_PLACE,
        )

    def _work_before(self, decision: Decision, state: ElasticState, parameters: Parameters) -> float:
        """Full-speed seconds that are done before J0 starts, as the decision plans it."""
        return sum(
            max(0.0, min(one.end_s, self.starts_s) - one.start_s) * parameters.rate_on(state.processes, one.processors)
            for one in decision.timeline
            if one.kind is PlannedKind.RUN
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        rivals = [{name: getattr(one, name) for name in Rival.__slots__} for one in self.rivals]
        return {"starts_s": self.starts_s, "ends_s": self.ends_s, "rivals": rivals, "each": self.each}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        return cls(data["starts_s"], data["ends_s"], tuple(Rival(**one) for one in data["rivals"]), data["each"])


def place_of(view: ClusterView, j0: BatchJobView, each: int = 1) -> Place | None:
    """The place of a J0 that has a planned start; None: use costs it nothing, as far as one can tell."""
    fair, starts_s = view.fair_share, j0.planned_start_s
    if fair is None or starts_s is None or j0.walltime_s is None:
        return None
    own = fair.of(j0.account)
    if own is None:
        return None
    rivals: list[Rival] = []
    for job in view.jobs:
        if not _behind(job, j0) or not _competes(view, job, j0):
            continue
        left = until_passed(fair, own, fair.of(job.account), j0.priority - job.priority)
        if left < math.inf:
            rivals.append(Rival(job.id, job.user, left, job.walltime_s or 0.0))
    return Place(starts_s, starts_s + j0.walltime_s, _worst(rivals), each) if rivals else None


def _behind(job: BatchJobView, j0: BatchJobView) -> bool:
    return (
        job.state is BatchState.PENDING
        and not job.blocked
        and job.account != j0.account
        and 0 < job.priority <= j0.priority
        and job.id != j0.id
        and bool(set(job.queue.split(",")) & set(j0.queue.split(",")))
    )


def _competes(view: ClusterView, job: BatchJobView, j0: BatchJobView) -> bool:
    """Whether the two cannot run side by side, by what the batch system plans, or by their sizes."""
    if job.planned_start_s is not None and j0.planned_start_s is not None:
        return job.planned_start_s > j0.planned_start_s
    queue = view.queue(j0.queue.partition(",")[0])
    return queue is not None and job.processors + j0.processors > queue.total_processors


def until_passed(fair: FairShare, own: Share, other: Share | None, ahead: float) -> float:
    """How many processor seconds an account may use until a job of `other` passes its own, which is `ahead` of it by
    so much of a priority; infinite: by no use that is to be expected."""
    if own.share <= 0.0 or ahead >= fair.weight:
        return math.inf
    part = own.used / fair.used if fair.used > 0.0 else 0.0
    if fair.by_rank:
        if other is None or other.used <= 0.0 or fair.used <= 0.0:
            return 0.0 if part <= 0.0 and other is not None else math.inf  # the first use takes the first rank
        least = own.share * (other.used / fair.used) / max(other.share, 1e-9)  # the part at which ranks are equal
        if part > least:
            return math.inf  # it comes behind the other already, and is ahead by something else
    else:
        factor = 2.0 ** (-part / own.share / fair.damping) - ahead / fair.weight
        if factor <= 0.0:
            return math.inf
        least = -math.log2(factor) * own.share * fair.damping
    if least >= 1.0:
        return math.inf
    return max(0.0, (least * fair.used - own.used) / (1.0 - least))


def _worst(rivals: list[Rival]) -> tuple[Rival, ...]:
    """In the order in which they pass, those that cost more than all before them."""
    found: list[Rival] = []
    for one in sorted(rivals, key=lambda one: (one.left, -one.delay_s)):
        if not found or one.delay_s > found[-1].delay_s:
            found.append(one)
    return tuple(found)
