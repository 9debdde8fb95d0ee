"""What users have named stands in a line of the log as text."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from ejbd.wire.visible import visible


def visible_values(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """As a processor of structlog, before the renderer: which writes a new line as `\\n` by itself."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = visible(value, keep="\n")
    return event
