"""What an effect is done in: the transaction alone, or the world of one job in it."""

from __future__ import annotations

from typing import TypeAlias

from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld

Where: TypeAlias = Context | JobWorld


def context_of(where: Where) -> Context:
    return where.ctx if isinstance(where, JobWorld) else where
