"""What events of scripts, launches, placements of ranks, and workers hold. NotRequired: only sometimes there."""

# Without `from __future__ import annotations`, which would hide from typing which fields are not required.

from typing import Any, NotRequired, TypedDict

from ejbd.wire.eventdata.common import Step
from ejbd.wire.kinds import OperationKind


class LeadAppointed(TypedDict):
    """The worker on this node starts the script for the `run`-th time."""

    node: str
    run: int


class ScriptEnded(TypedDict):
    """The script's own exit code."""

    code: int
    run: int


class LaunchAsked(TypedDict):
    """The script starts `ranks` ranks; `ordinal` counts its launches from 0."""

    ordinal: int
    ranks: int


class LaunchAnew(TypedDict):
    """The launch begins again; what it had done is lost."""

    ordinal: int
    reason: str


class LaunchRefused(TypedDict):
    """A launch of `name` in `line` (0: not known) that EJB refuses. `handled`: the script asks how it ended."""

    run: int
    name: str
    line: int
    reason: str
    handled: bool


class LaunchEnded(TypedDict):
    """The exit code of the application."""

    ordinal: int
    code: int


class EpochLaunching(TypedDict):
    """A placement: so many ranks on so many processors of these subjobs. `restart_from`: the checkpoint's epoch."""

    epoch: int
    launch: int
    processors: int
    ranks: int
    subjobs: list[str]
    restart_from: int | None


class EpochStep(Step):
    """A placement that runs makes `rate` full-speed seconds a second; `bytes` and `seconds` are its checkpoint's.

    `code`: why it is given up, for programs (EpochCode).
    """

    epoch: int
    code: NotRequired[str]
    processors: NotRequired[int]
    subjobs: NotRequired[list[str]]
    rate: NotRequired[float]
    wanted: NotRequired[list[str]]
    bytes: NotRequired[int | None]
    seconds: NotRequired[float | None]


class EpochRate(TypedDict):
    """How fast it has turned out to be, in full-speed seconds a second."""

    epoch: int
    rate: float


class EpochResized(TypedDict):
    """A placement goes on on other processors of its nodes, without a checkpoint: on so many after so many (`was`).

    `rate`: in full-speed seconds a second. `seconds`: what the slowest worker took.
    """

    epoch: int
    processors: int
    was: int
    rate: float
    seconds: float


class EpochReason(TypedDict):
    """A placement, and a sentence about it."""

    epoch: int
    reason: str


class RankFailed(TypedDict):
    """The first rank that died, and sentences about all that had died by then."""

    epoch: int
    rank: int
    code: int
    said: list[str]


class RankMemory(TypedDict):
    """A rank that the kernel killed, and on which node: its job's processes there wanted more than they may have."""

    epoch: int
    rank: int
    node: str


class RankStuck(TypedDict):
    """`seconds`: for how long."""

    epoch: int
    rank: int
    seconds: float


class CheckpointGivenUp(TypedDict):
    """Its restart kept failing; an older one is resumed (null: none, the launch begins anew)."""

    epoch: int
    resumed_from: int | None
    reason: str


class WorkerRegistered(TypedDict):
    """What the node offers: processors, checkpoint engines, the version of DMTCP (null: none). `age_s`: for how long
    the worker's process had been there."""

    age_s: NotRequired[float]
    node: str
    processors: int
    engines: list[str]
    dmtcp: Any


class WorkerLost(TypedDict):
    """The node, and why."""

    node: str
    reason: str


class WorkerLog(TypedDict):
    """What a worker has to say."""

    node: str
    level: str
    message: str


class OperationFailed(Step):
    """What `worker` was asked to do and could not."""

    operation: OperationKind
    seq: int
    epoch: int | None
    worker: str
