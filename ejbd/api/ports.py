"""The ports that were taken where any would do: the same ones again, so that a page left open finds its daemon."""

from __future__ import annotations

import json
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


class KeptPorts:
    """A file of the state directory. What is wrong with it costs the same address, and never a start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)

    def of(self, listen: str) -> int:
        """The port that was last taken for a `host:0`; 0: none is known."""
        return self._known.get(listen, 0)

    def keep(self, listen: str, port: int) -> None:
        """Remember it, where `listen` left the choice."""
        if not listen.endswith(":0") or self._known.get(listen) == port:
            return
        self._known[listen] = port
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(json.dumps(self._known))
            new.replace(self._path)
        except OSError as error:
            log.warning("api.port-not-kept", path=str(self._path), error=error.strerror)


def _read(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): port for key, port in found.items() if type(port) is int and 0 < port < 65536}
