"""What events of queues, nodes, users and the daemon hold. NotRequired: only sometimes there."""

# Without `from __future__ import annotations`, which would hide from typing which fields are not required.

from typing import Any, NotRequired, TypedDict


class DrainAsked(TypedDict):
    """Nodes that elastic jobs are to be off by `by_s`, and the user that asked."""

    nodes: str
    by_s: float
    by: str


class DrainFree(TypedDict):
    """Nodes that were to be free by `by_s`, and that no elastic job runs on any more."""

    nodes: str
    by_s: float


class DrainCancelled(TypedDict):
    """Nodes that EJB may use again, and the user that asked."""

    nodes: str
    by: str


class ClockSet(TypedDict):
    """Every time that is stored was shifted by so much."""

    by_s: float


class QueueChanged(TypedDict):
    """The settings that were changed at run time (null: back to the configuration's). `when`: in this window alone."""

    queue: str
    by: str
    changes: dict[str, Any]
    when: NotRequired[str]


class QueueWindow(TypedDict):
    """Windows that have `begun` or `ended`, and of the `settings` that windows set what is in force now.

    It is in force until `until_s` (null: for good).
    """

    queue: str
    begun: list[str]
    ended: list[str]
    settings: dict[str, Any]
    until_s: float | None


class QueuePaused(TypedDict):
    """`what` kept failing: submissions, or starts. The next is tried after `pause_s`. `whose`: of this
    `user/account/QOS` alone."""

    queue: str
    what: str
    whose: str
    reason: str
    pause_s: float


class QueueResumed(TypedDict):
    """What had failed so many times is tried again."""

    queue: str
    what: str
    whose: str
    reason: str
    failures: int


class TokenCreated(TypedDict):
    """A bearer token, by the beginning of its digest."""

    token: str
    user: str
    label: str
    scope: str
    expires_s: float


class TokenRevoked(TypedDict):
    """A bearer token, and the user that revoked it."""

    token: str
    user: str
    by: str
