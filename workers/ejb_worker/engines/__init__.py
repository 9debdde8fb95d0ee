"""Checkpoint engines by name."""

from __future__ import annotations

import sys
from typing import Dict, List

from .application import ApplicationEngine
from .base import Engine, EngineError
from .dmtcp_tools import build_of_node
from .none import NoneEngine
from .offered import Offered, OfferedDmtcp, OfferedProfile
from .site import MODULES

__all__ = ["ENGINES", "build_of_node", "engine"]


def _site_engines() -> List[Engine]:
    """Those of the site. One that cannot be loaded is not offered, and this worker says why in its log."""
    found: List[Engine] = []
    if not MODULES:
        return found
    import importlib

    for module in MODULES:
        try:
            found.append(importlib.import_module("." + module, __name__).ENGINE)
        except Exception as error:
            sys.stderr.write("ejb worker: engine module %s cannot be loaded: %s\n" % (module, error))
    return found


ENGINES: Dict[str, Engine] = {
    engine.name: engine
    for engine in (*_site_engines(), ApplicationEngine(), OfferedDmtcp(), OfferedProfile(), NoneEngine())
}


def engine(name: str) -> Engine:
    """Raises EngineError with one sentence if there is none of that name."""
    try:
        found = ENGINES[name]
    except KeyError:
        raise EngineError("engine %s is not known to this worker (known: %s)" % (name, ", ".join(ENGINES))) from None
    if isinstance(found, Offered):
        found = ENGINES[name] = found.engine()
    return found
