"""What one poll of a batch system shows, as frozen values. Adapters make it; windows and the manager read it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class BatchState(StrEnum):
    """The life of a batch job as every batch system knows it. What a parser does not know is UNKNOWN, never an end."""

    PENDING = "pending"
    HELD = "held"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDING = "ending"  # still holds its processors (Slurm's COMPLETING)
    COMPLETED = "completed"  # exit code 0
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        return self in _ENDED

    @property
    def holds_processors(self) -> bool:
        return self in (BatchState.RUNNING, BatchState.SUSPENDED, BatchState.ENDING)


_ENDED = frozenset(
    {
        BatchState.COMPLETED,
        BatchState.FAILED,
        BatchState.TIMEOUT,
        BatchState.CANCELLED,
        BatchState.NODE_FAIL,
        BatchState.PREEMPTED,
    }
)


class Reservations(StrEnum):
    """How the batch system keeps room for a waiting job: counted in processors, or as named whole nodes."""

    PROCESSORS = "processors"
    NODES = "nodes"


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. `free` processors are idle and may be given out now; 0 where the node is down or drained.

    `memory_mb` is what jobs may have of its memory altogether, `free_memory_mb` what none has been given (0 and 0: not
    known). `gres`: name, all, free, of each kind of device.
    """

    name: str
    processors: int
    free: int
    usable: bool
    queues: tuple[str, ...]
    state: str = ""
    memory_mb: int = 0
    free_memory_mb: int = 0
    features: tuple[str, ...] = ()
    gres: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SiteReservation:
    """Processors that a site keeps for others, from `start_s` to `end_s` (absolute seconds; infinite: without an end).

    Its maker has turned what the batch system says into this: a reservation of Slurm, PBS or Maui, or nodes that an
    operator has asked EJB to leave (`ejb drain`). `nodes` are kept whole, or `processors` of each of them. `admits`:
    jobs of this daemon may run in it without asking for it by name, so that only its end is in their way. `what` says
    in some words what it is for (`maintenance`). One that comes again and again is told as its present or next time.
    """

    name: str
    start_s: float
    end_s: float
    nodes: tuple[str, ...]
    processors: int | None = None
    admits: bool = False
    what: str = "reservation"

    def ends_windows_s(self, now: float) -> float | None:
        """From when on windows cannot use what it keeps: `now` where it has begun; None: it is in no job's way."""
        if self.end_s <= now:
            return None
        if self.start_s > now:
            return self.start_s
        if not self.admits:
            return now
        return self.end_s if self.end_s < math.inf else None

    def of_node(self, node: NodeView) -> int:
        """How many of the node's processors it keeps at most."""
        return node.processors if self.processors is None else min(self.processors, node.processors)


def base_id(id: str) -> str:
    """`12` of an array's element `12_3` and of a component `12+1`; `12[].head` of `12[3].head` (PBS)."""
    number, bracket, rest = id.partition("[")
    if bracket and "]." in rest:
        return f"{number}[]{rest[rest.index(']') + 1 :]}"
    return id.partition("_")[0].partition("+")[0]


class Counted(StrEnum):
    """What a limit is about: sums over jobs, and what one job may have."""

    JOBS = "jobs that run"
    SUBMITTED = "jobs that run or wait"
    PROCESSORS = "processors"
    NODES = "nodes"
    PROCESSOR_SECONDS = "processor seconds"
    OF_A_JOB = "processors of a job"
    WALLTIME_S = "seconds of a job"


@dataclass(frozen=True, slots=True)
class BatchJobView:
    """One batch job, ours or another's. Times are seconds since the epoch; None is not known."""

    id: str
    name: str
    user: str
    queue: str
    state: BatchState
    processors: int
    walltime_s: float | None = None
    submit_s: float | None = None
    start_s: float | None = None  # actual start, of a job that has started
    end_s: float | None = None  # planned end while running, actual end afterwards
    nodes: tuple[str, ...] = ()
    planned_start_s: float | None = None  # of a pending job: when the scheduler means to start it
    planned_nodes: tuple[str, ...] = ()  # and where (Reservations.NODES only)
    exit_code: int | None = None  # 128+signal for a signal
    exit_signal: int | None = None  # that ended it, where the batch system tells it from that code
    reason: str = ""
    blocked: bool = False  # pending for another reason than room: a dependency, a limit, a begin time
    tag: str = ""  # of ours: that it was submitted with, whatever it is called by now
    foreign: bool = False  # another user's, and may have any name
    account: str = ""  # that it is charged to ("": not told)
    qos: str = ""
    limited: bool = False  # blocked by a limit, or by licences, that jobs which run are counted against
    limited_by: Counted | None = None  # of what kind that limit is, where that is told
    priority: int = 0  # of a job that waits (0: not told)
    share: tuple[tuple[str, int], ...] = ()  # of a job that may be folded: the processors that it has now, by node
    places: tuple[tuple[str, tuple[int, ...]], ...] = ()  # of a pool's job: their numbers, by node

    @property
    def promised_s(self) -> float | None:
        """When the scheduler means to start it; what only may not begin before then (`BeginTime`) has no such time."""
        return None if self.blocked and self.reason == "BeginTime" else self.planned_start_s

    @property
    def mark(self) -> str:
        """By what a job of ours is known: its tag, or its name where nothing else tells. Another user's has none."""
        return "" if self.foreign else self.tag or self.name

    @property
    def base_id(self) -> str:
        """The id that the submission was answered with."""
        return base_id(self.id)


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue (Slurm partition). `default_walltime_s`: of a job that asks for none (None: no end, or not known)."""

    name: str
    up: bool
    max_walltime_s: float | None  # None: no limit
    processor_quantum: int  # processors are given out in multiples of this (1, or a node's where it is exclusive)
    total_processors: int
    default: bool = False
    leads_to: tuple[str, ...] = ()  # a routing queue (PBS): the queues in which its jobs are listed later
    fed_by: str = ""  # the routing queue that alone may submit to it
    default_walltime_s: float | None = None
    jobs_a_processor: int = 1  # that may have one at the same time (Slurm: OverSubscribe=YES:2, FORCE:2)


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """What a site gives a job that does not ask for memory, and the most it may ask for; megabytes, None: no rule.

    `counted`: memory is given out like processors, so that a node can be full of it.
    """

    counted: bool = False
    default_mb_per_processor: int | None = None
    default_mb_per_node: int | None = None
    most_mb_per_processor: int | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """Room that the scheduler itself says it has: so many processors until then (None: no end is known)."""

    processors: int
    end_s: float | None


@dataclass(frozen=True, slots=True)
class AccountLimit:
    """A limit that the batch system's accounts set: jobs that would exceed it wait, or are not taken.

    `name` is the batch system's own, with what it belongs to (`MaxJobs of ada in account physics`). `used` of `most`
    were in use when the view was taken; what one job may have has no use. It counts jobs of these `accounts` (none: of
    any), of this `qos` or these `queues` (none of both: of any), and, where `own`, the daemon's user's alone. Jobs of
    `other_rules` (QOS) are counted, too, but have a limit of this kind of their own in its place.
    """

    name: str
    counted: Counted
    most: float
    used: float = 0.0
    accounts: tuple[str, ...] = ()
    qos: str = ""
    queues: tuple[str, ...] = ()
    own: bool = False
    other_rules: tuple[str, ...] = ()

    def counts(self, account: str, qos: str, queue: str, foreign: bool = False) -> bool:
        """Whether a job of that kind is counted."""
        if (foreign and self.own) or (self.accounts and account not in self.accounts):
            return False
        return not (self.qos or self.queues) or qos == self.qos or queue in self.queues

    def holds_for(self, account: str, qos: str, queue: str) -> bool:
        """Whether it can keep a job of this daemon's user from starting."""
        return qos not in self.other_rules and self.counts(account, qos, queue)


@dataclass(frozen=True, slots=True)
class Share:
    """An account's `share` of everything (0 to 1), and how many processor seconds count as `used` by it now."""

    account: str
    share: float
    used: float


@dataclass(frozen=True, slots=True)
class FairShare:
    """How what an account uses lowers the priority of its jobs that wait.

    `weight`: what a whole fair share is worth in a priority. `by_rank`: accounts stand in the order of share over use,
    and their rank counts (Slurm's Fair Tree); else 2^(-use/share/damping) does. `used`: by all of them together.
    """

    weight: float
    by_rank: bool = True
    damping: float = 1.0
    used: float = 0.0
    shares: tuple[Share, ...] = ()

    def of(self, account: str) -> Share | None:
        return next((one for one in self.shares if one.account == account), None)


KILL_WAIT_S = 2.0  # where the batch system does not say
PASS_S = 30.0  # Slurm's default (bf_interval)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything one poll saw. `jobs` lists pending jobs in the order in which the scheduler will consider them.

    `walltime_quantum_s`: walltimes are whole multiples of this (60 on Slurm). `unparsed` counts rows that the parser
    could not read: they are kept out of `jobs`, never dropped in silence. `site_reservations`: coming and present ones,
    as of a minute ago at most.

    `offers`: what the scheduler itself says can be used now; such rows nest, and no window is wider or longer (None: it
    is not asked; empty: nothing, or it does not answer). `keeps_order`: it plans starts that a job which is let in
    before cannot push back; where it does not, nothing is started while others wait. `windows_by`: what windows go by,
    in plain English ("" where the batch system has but one). `kills_unmet`: the site ends a job that waits for what can
    never be, unless the job says otherwise. `kill_wait_s`: from TERM to KILL where a job is ended. `pass_s`: how often
    the scheduler looks whether a waiting job can start ahead of others. `limits`: those of accounts that jobs of this
    daemon's user are held to, read a minute ago at most and counted as of now; `limits_unknown`: why they could not be
    read ("": they were, or there are none). `fair_share`: how what an account uses lowers the priority of its jobs that
    wait (None: it does not).

    `schedules`: its scheduler is at work; where it is switched off, nothing starts. `elements_listed`: `jobs` has each
    element of an array that is to be listed, so that one without a row waits no more. `chains`: it starts a job by
    itself when another one, named by its number, has ended well.

    `blind`: why jobs of others cannot be seen, in plain English ("" where they are): what looks free may be planned for
    a job, so that no queue has windows then.
    """

    time_s: float
    nodes: tuple[NodeView, ...]
    jobs: tuple[BatchJobView, ...]
    queues: tuple[QueueView, ...]
    reservations: Reservations
    walltime_quantum_s: float = 1.0
    unparsed: int = 0
    memory: MemoryRules = MemoryRules()
    site_reservations: tuple[SiteReservation, ...] = ()
    offers: tuple[Offer, ...] | None = None
    keeps_order: bool = True
    windows_by: str = ""
    kills_unmet: bool = False
    kill_wait_s: float = KILL_WAIT_S
    pass_s: float = PASS_S
    limits: tuple[AccountLimit, ...] = ()
    limits_unknown: str = ""
    fair_share: FairShare | None = None
    schedules: bool = True
    elements_listed: bool = False
    chains: bool = False
    blind: str = ""

    def queue(self, name: str) -> QueueView | None:
        return next((q for q in self.queues if q.name == name), None)

    def names_of(self, queue: str) -> tuple[str, ...]:
        """The queues in which jobs that were submitted to this one are listed."""
        found = self.queue(queue)
        return (queue,) if found is None else (queue, *found.leads_to)

    def usable_nodes(self, queue: str) -> list[NodeView]:
        """The nodes of a queue that can be used now."""
        return [node for node in self.nodes if node.usable and queue in node.queues]

    def reserved_unit(self, queue: QueueView, nodes: Iterable[NodeView]) -> int:
        """Of how many processors at a time the batch system keeps room for a job that waits in this queue.

        Where it keeps nodes, and the queue's `nodes` differ, it is the largest one's: rather too much is taken for
        kept.
        """
        if self.reservations is not Reservations.NODES:
            return max(1, queue.processor_quantum)
        return max((node.processors for node in nodes), default=1)
