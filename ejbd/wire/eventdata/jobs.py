"""What events of jobs and decisions about them hold. NotRequired: only sometimes there."""

# Without `from __future__ import annotations`, which would hide from typing which fields are not required.

from typing import Any, NotRequired, TypedDict

from ejbd.wire.eventdata.common import By, Step


class JobStep(Step):
    """A change of state: from which, and why. `incarnation`: the new one, after a setback."""

    incarnation: NotRequired[int]


class JobReceived(TypedDict):
    """What a submission has become. `code`: of the reason, where it has one. `elements`: of an elastic array,
    its indices; `array`, `index`: of an element. `notes`: what its user was told then."""

    queue: str
    elastic: bool
    reason: str
    code: NotRequired[str]
    notes: NotRequired[list[str]]
    elements: NotRequired[str]
    array: NotRequired[str]
    index: NotRequired[int]


class CancelAsked(By):
    """The user that asked. `elements`: of an array these alone."""

    elements: NotRequired[str]


class Dependency(TypedDict):
    """Whether what it waited for is there; if not, why it can never be."""

    met: bool
    reason: str


class JobSignalled(TypedDict):
    """The signal that was sent since its time ends at `end_s`: to the script's shell, or to all ranks."""

    signal: str
    script: bool
    end_s: float


class JobSignalAsked(By):
    """The user that asked, the signal, and where it went: to the ranks, to the script's shell, or to all."""

    signal: str
    to: str


class JobMail(TypedDict):
    """Its subject (a word of --mail-type) and its recipient. `error`: why it could not be sent, or ""."""

    about: str
    to: str
    error: str


class JobAgain(TypedDict):
    """A job that ended is run again after `pause_s`, with this walltime. `queue`: where it goes into another one."""

    walltime_s: float
    pause_s: float
    reason: str
    queue: NotRequired[str]


class JobGap(TypedDict):
    """The walltime with which it is sent there. `finishes`: the probability that the run is done in it."""

    walltime_s: float
    finishes: float
    reason: str


class JobLimit(TypedDict):
    """The walltime that it has at the batch system from now on."""

    walltime_s: float
    reason: str


class JobAlone(TypedDict):
    """When its J0's workers began it, by their own clock, and that from now on it runs as it was submitted."""

    began_s: float
    reason: str


class NotMovable(TypedDict):
    """`how`: seen (its program shows it), failed (it was tried), or node. With node one of its nodes has no DMTCP."""

    how: str
    reason: str


class Decided(TypedDict):
    """The policy's answer, and what it was asked. Then what a move, over-subscription, a start and an end were thought
    to cost."""

    decision: dict[str, Any]
    question: dict[str, Any]
    cost: dict[str, Any]
    penalty: dict[str, Any]
    overheads: NotRequired[dict[str, Any]]


class Leaving(TypedDict):
    """Subjobs that are left before they end (at `end_s`), and those that stay; W by then.

    `given_to`: the batch job that waits for what is left. Then there is also what the policy was asked, and its answer.
    """

    leaves: list[str]
    stays: list[str]
    end_s: float
    work_s: float
    reason: str
    given_to: NotRequired[str]
    decision: NotRequired[dict[str, Any]]
    question: NotRequired[dict[str, Any]]
    cost: NotRequired[dict[str, Any]]
    penalty: NotRequired[dict[str, Any]]
    overheads: NotRequired[dict[str, Any]]


class Evolving(TypedDict):
    """Its `steps` (seconds and places), when each begins, and the end of the last; `base`: what is held throughout."""

    steps: list[list[float]]
    starts_s: list[float]
    end_s: float
    base: int
    reason: str


class CheckpointDue(TypedDict):
    """Where the ranks are; W by then. `interval_s`: of periodic checkpoints."""

    epoch: int
    interval_s: NotRequired[float | None]
    work_s: float
    reason: str
