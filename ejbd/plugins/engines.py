"""Checkpoint engines by name: EJB's own (`ejbd.wire.kinds.Engine`), and those of installed packages.

A package offers one by an entry point in the group `ejbd.engines`, which names an :class:`EngineKind`. What runs on the
nodes is one file, which travels with the worker. docs/plugins.md has an example.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ejbd.plugins import entrypoints
from ejbd.wire.kinds import ENGINES, MOVING_ENGINES

GROUP = "ejbd.engines"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """A checkpoint engine of a site.

    `worker`: the file that is its code on the nodes (standard library, Python 3.8). It becomes a module beside
    `workers/ejb_worker/engines/base.py`, from which it may import as the engines there do (`from .base import Engine`),
    and has an instance in `ENGINE`. `moves`: whether it takes an application from one placement to another.
    """

    name: str
    worker: Path
    moves: bool = True

    @property
    def module(self) -> str:
        """What it is called in the worker."""
        return f"site_{self.name.replace('-', '_')}"


def site_engines() -> Mapping[str, EngineKind]:
    """Those of installed packages, by their names."""
    return _installed()[0]


def broken_engines() -> Mapping[str, str]:
    """What could not be loaded, by its name, and why in a sentence."""
    return _installed()[1]


def known_engines() -> tuple[str, ...]:
    """What a user may ask for; `auto`: what suits the job."""
    return (*ENGINES, *site_engines())


def moving_engines() -> frozenset[str]:
    """Those that can take an application from one placement to another."""
    return MOVING_ENGINES | {one.name for one in site_engines().values() if one.moves}


@functools.cache
def _installed() -> tuple[Mapping[str, EngineKind], Mapping[str, str]]:
    found: dict[str, EngineKind] = {}

    def take(name: str, one: object) -> None:
        if not isinstance(one, EngineKind):
            raise TypeError("it is no EngineKind of ejbd.plugins.engines")
        if one.name != name or not _NAME.fullmatch(name):
            raise ValueError(f"it is called {one.name!r}; an entry point has the engine's name, in lower case")
        if name in ENGINES or name in found:
            raise ValueError(f"there is an engine {name} already")
        compile(one.worker.read_bytes(), str(one.worker), "exec", dont_inherit=True)
        found[name] = one

    return found, entrypoints.load(GROUP, "engine", take)
