"""Engines as a worker offers them, before a job has one: without the modules that they need then.

Those would take memory in every worker, and time while a job waits for its worker.
"""

from __future__ import annotations

import os

from .base import Engine
from .dmtcp_tools import find_tools


class Offered(Engine):
    def engine(self) -> Engine:
        """The engine itself."""
        raise NotImplementedError


class OfferedDmtcp(Offered):
    name = "dmtcp"

    def probe(self) -> str:
        return find_tools()[1]

    def engine(self) -> Engine:
        from .dmtcp import DmtcpEngine

        return DmtcpEngine()


class OfferedProfile(Offered):
    name = "profile"

    def probe(self) -> str:
        return "" if os.path.exists("/proc/self/status") else "engine profile needs /proc on this node"

    def engine(self) -> Engine:
        from .profile import ProfileEngine

        return ProfileEngine()
