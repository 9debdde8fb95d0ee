"""Checkpoint engines by name."""

from __future__ import annotations

from typing import Dict

from .application import ApplicationEngine
from .base import Engine, EngineError
from .dmtcp import DmtcpEngine
from .dmtcp_tools import build_of_node
from .none import NoneEngine

__all__ = ["ENGINES", "build_of_node", "engine"]

ENGINES: Dict[str, Engine] = {engine.name: engine for engine in (ApplicationEngine(), DmtcpEngine(), NoneEngine())}


def engine(name: str) -> Engine:
    """Raises EngineError with one sentence if there is none of that name."""
    try:
        return ENGINES[name]
    except KeyError:
        raise EngineError("engine %s is not known to this worker (known: %s)" % (name, ", ".join(ENGINES))) from None
