"""A policy: when an elastic job starts, grows, moves and leaves, as a value with its parameters; and policies by name.

A policy is a class with a name, parameters that it declares (`ejbd.core.parameters`), an order of visits and one door:
`answer`. The manager, `ejb submit --dry-run` and the simulator put a `Question` (`ejbd.core.question`) to it, and carry
out the `Decision` that comes back (`ejbd.core.decision`); docs/policies.md adds one step by step.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from ejbd.core.decision import Decision, DecisionKind, ReasonCode
from ejbd.core.lending import Borrower, Lending, Standing
from ejbd.core.parameters import JOB_WORDS, Parameters, declared
from ejbd.core.shapes import BackfillSlot
from ejbd.core.state import ElasticState

if TYPE_CHECKING:
    from ejbd.core.question import Question

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_SCHEDULERS = frozenset({"easy", "conservative", "fcfs", "ejb"})  # the simulator's own words


class Situation(StrEnum):
    """What a policy is asked about."""

    WAIT = "wait"  # the job waits, and may start or resume on what is free
    RUNNING = "running"  # it runs on subjobs, and may get more
    PLACEHOLDER_STARTED = "placeholder_started"  # the batch system has started J0
    ASKED_BACK = "asked_back"  # it runs on room that it only borrows, and a waiting job would fit into it
    IN_THE_WAY = "in_the_way"  # it runs on subjobs, and a limit that these use up keeps a batch job from starting
    BEYOND = "beyond"  # it runs on more processors than it asked for, and another job waits
    SUBJOB_ENDS = "subjob_ends"  # it runs on subjobs, of which some may end before it does
    ENDED = "ended"  # the application has ended, with an outcome
    HEADS = "heads"  # it is the head of a pool's queue
    FOLDED = "folded"  # it runs folded in a pool, where no job waits any more


class Policy(ABC):
    """Answers are pure: what they depend on is passed in, and the parameters are `parameters`.

    Times are absolute seconds. Every answer says in its `timeline` what it plans, in its `reason` why, and in its
    `code` the same for programs.
    """

    name: ClassVar[str]
    """By which a queue's settings and the simulator choose it: lower case, digits and hyphens."""
    declares: ClassVar[type[Parameters]] = Parameters
    folds_jobs: ClassVar[bool] = False
    """Whether it folds jobs in place. In the simulator every job is then its to fold, of whatever width."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    @property
    def suspends(self) -> bool:
        """Whether a job goes back to waiting, its work kept, where nothing that it holds lasts."""
        return False

    @property
    def acts_in_move(self) -> bool:
        """Whether a job is asked about at all while its ranks are being moved."""
        return False

    def visit_key(self, waiting: bool, processes: int, work_left_s: float) -> tuple[float, float]:
        """Elastic jobs look for slots in the order of this key, equal ones in the order of arrival."""
        return 0.0, 0.0

    @abstractmethod
    def answer(self, question: Question) -> Decision:
        """What is to be done about the job of a question, and why. Not asked for a start while there are no slots."""

    def borrows(self, state: ElasticState, now: float) -> Borrower | None:
        """What a running job may be made to give back for a waiting one; None: it keeps what it holds."""
        return None

    def folds(self, state: ElasticState, lent: Collection[str], now: float) -> Borrower | None:
        """The same without a checkpoint: `lent` are the subjobs that its ranks can leave in place."""
        return None


class QueuePolicy(Policy):
    """A policy for the queues of a batch system: each situation of an elastic job has a method of its own."""

    def answer(self, question: Question) -> Decision:
        state, now = question.state, question.now_s
        match question.situation:
            case Situation.WAIT:
                return self.waits(state, question.slots, now)
            case Situation.RUNNING:
                return self.runs(state, question.slots, now)
            case Situation.PLACEHOLDER_STARTED:
                return self.placeholder_started(state, now)
            case Situation.IN_THE_WAY if question.stands is not None:
                return self.in_the_way(state, question.stands, now)
            case Situation.ASKED_BACK if question.lending is not None:
                return self.asked_back(state, question.lending, now)
            case Situation.BEYOND:
                return self.beyond(state, now)
            case Situation.SUBJOB_ENDS:
                return self.subjob_ends(state, now)
            case Situation.ENDED:
                return self.ended(state, now, question.outcome)
        why = f"the policy {self.name} has no answer to the situation {question.situation.value}"
        return Decision(DecisionKind.NOTHING, state.job, now, why)

    @abstractmethod
    def waits(self, state: ElasticState, slots: Sequence[BackfillSlot], now: float) -> Decision:
        """START on some of the slots, or NOTHING. Not asked while there are none."""

    @abstractmethod
    def runs(self, state: ElasticState, slots: Sequence[BackfillSlot], now: float) -> Decision:
        """EXPAND onto some of the slots, or NOTHING."""

    @abstractmethod
    def placeholder_started(self, state: ElasticState, now: float) -> Decision:
        """KEEP_SUBJOBS, MOVE_TO_PLACEHOLDER or START_ON_PLACEHOLDER."""

    @abstractmethod
    def subjob_ends(self, state: ElasticState, now: float) -> Decision:
        """NOTHING where the subjobs held carry the job to its end, else LEAVE, SUSPEND or GIVE_UP, and when."""

    def asked_back(self, state: ElasticState, lending: Lending, now: float) -> Decision:
        """SUSPEND, for one of those that wait; or NOTHING. Only asked of a job that `borrows`.

        LEAVE of one that `folds`, where that is what it is said to give.
        """
        return Decision(
            DecisionKind.NOTHING, state.job, now, "the policy gives nothing back", code=ReasonCode.GIVES_NOTHING
        )

    def beyond(self, state: ElasticState, now: float) -> Decision:
        """LEAVE what it holds beyond the width that it asked for; or NOTHING."""
        return Decision(
            DecisionKind.NOTHING, state.job, now, "the policy gives nothing back", code=ReasonCode.GIVES_NOTHING
        )

    def in_the_way(self, state: ElasticState, stands: Standing, now: float) -> Decision:
        """SUSPEND, so that what stands on a limit can start; or NOTHING. For its own J0 it does what it would do if
        that started now; any other it makes way for where it `borrows`."""
        if not (state.subjobs and state.movable and state.suspendable):
            why = "it cannot go back to waiting with its work kept"
            return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.NOT_MOVABLE)
        if not stands.own and self.borrows(state, now) is None:
            why = "nothing that it holds would be worth giving back"
            return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.GIVES_NOTHING)
        way = self.placeholder_started(state, now) if stands.own else None
        if way is not None and way.kind is DecisionKind.KEEP_SUBJOBS:
            why = f"not given back for J0: {way.reason}"
            return Decision(DecisionKind.NOTHING, state.job, now, why, code=ReasonCode.EARLIEST)
        return Decision(
            DecisionKind.SUSPEND,
            state.job,
            now,
            f"{stands.sentence()}, and could start but for what this job runs on",
            cancel=tuple(subjob.id for subjob in state.subjobs),
            begin_s=now,
            end_s=now,
            code=ReasonCode.STANDS_ON_LIMIT,
        )

    @abstractmethod
    def ended(self, state: ElasticState, now: float, outcome: str) -> Decision:
        """COMPLETE, or AGAIN: the job goes back into the batch system's queue.

        `outcome`: `completed`, `failed` or `timeout`, once nothing else is left to be tried.
        """


class UnknownPolicy(LookupError):
    """No policy has that name; the text is one sentence for people."""


_POLICIES: dict[str, type[Policy]] = {}


def register(policy: type[Policy]) -> type[Policy]:
    """Make a policy known by its name; for use as a decorator. Raises ValueError for a name that cannot be."""
    name = policy.name
    if not _NAME.fullmatch(name) or name in _SCHEDULERS:
        raise ValueError(f"{name!r} is no name for a policy: lower case, digits and hyphens, and none of easy, ejb ...")
    _check_words(policy)
    known = _POLICIES.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (policy.__module__, policy.__qualname__):
        raise ValueError(f"there is a policy {name} already, in {known.__module__}")
    _POLICIES[name] = policy
    return policy


def _check_words(policy: type[Policy]) -> None:
    """What a job may say is not called as what it says of anything else. Raises ValueError."""
    taken = [one.name for one in declared(policy.declares).values() if one.about.per_job and one.key in JOB_WORDS]
    if taken:
        raise ValueError(f"{taken[0]} of the policy {policy.name} cannot be per_job=True: jobs have that word")


def registered() -> Mapping[str, type[Policy]]:
    """The policies that are known by now, EJB's own among them."""
    import ejbd.core.bundling.policy  # (they register themselves)
    import ejbd.core.malleable.policy  # noqa: F401

    return _POLICIES


def policy_named(name: str) -> type[Policy]:
    """The policy of that name. Raises UnknownPolicy where there is none."""
    found = registered()
    if name not in found:
        raise UnknownPolicy(f"no policy is called {name}; there are: {', '.join(sorted(found))}")
    return found[name]
