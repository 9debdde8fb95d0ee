"""What events of several subjects hold. NotRequired: only sometimes there."""

# Without `from __future__ import annotations`, which would hide from typing which fields are not required.

from typing import NotRequired, TypedDict


class Nothing(TypedDict):
    """The kind says it all."""


class Reason(TypedDict):
    """A sentence."""

    reason: str


class Error(TypedDict):
    """A sentence about what went wrong."""

    error: str


class By(TypedDict):
    """The user that asked."""

    by: str


Step = TypedDict("Step", {"from": str, "reason": NotRequired[str]})
Step.__doc__ = "A change of state: from which, and why."
