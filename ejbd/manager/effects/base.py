"""What an effect is, and what a rule is that asks for effects."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that is to be done for a job, or for the whole site. A value: to make one does nothing.

    Rows in it are the transaction's own. Each kind has one handler in :mod:`ejbd.manager.acts`, which alone writes.
    """


Effects: TypeAlias = Generator[Effect, Any, T]
"""The effects that a rule asks for, one after the other, and what it returns in the end.

A rule reads facts and yields effects; it writes nothing. Each effect is done before the rule goes on, so that what it
reads next is as that effect has left it. Some answer: `subjob: Subjob = yield Ask(...)`. A rule that uses another
of its own room says `yield from`; one of another room it reaches by that room's door, an effect too
(:mod:`ejbd.manager.effects.doors`).
"""
