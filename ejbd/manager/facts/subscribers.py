"""Which rules are asked, and told, when something ends: the doors for rules that are not the manager's own.

A subscriber is a rule: a function of the job, the end and what becomes of it so far, that asks for effects. It runs in
the transaction in which the end was seen, in a savepoint of its own (:mod:`ejbd.manager.acts.consulting`). What is
written is durable together with the end. A fault of it undoes that, is reported as the job's fault, and changes nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ejbd.manager.effects import Effects
from ejbd.manager.effects.ends import End, Outcome

if TYPE_CHECKING:  # a job's world holds its context, and that holds these
    from ejbd.manager.facts.jobworld import JobWorld

Asked = Callable[["JobWorld", End, Outcome], Effects[Outcome | None] | Outcome | None]
"""Answers another outcome, or None: as it is. One that asks for no effects may just answer."""
Told = Callable[["JobWorld", End, Outcome], Effects[None]]


@dataclass(frozen=True)
class Subscribers:
    """`asked` may change what becomes of an end, each knowing the answer of the one before; the `told` come after."""

    asked: tuple[Asked, ...] = ()
    told: tuple[Told, ...] = ()
