"""What installed packages offer by entry points: policies, checkpoint engines, batch systems (docs/plugins.md).

A package's fault is no fault of users that do not ask for what it offers. It is kept as a sentence, which `ejb doctor`
and the daemon's log print, and the others are loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any


def load(group: str, what: str, take: Callable[[str, Any], None]) -> dict[str, str]:
    """Hand every object that packages offer in a group to `take`, with its name; `what` is one of them, in words.

    What could not be loaded, or was not taken (any exception), is returned by its name, each with one sentence.
    """
    failed: dict[str, str] = {}
    for point in entry_points(group=group):
        try:
            take(point.name, point.load())
        except Exception as error:
            package = point.dist.name if point.dist is not None else "a package"
            failed[point.name] = f"the {what} {point.name} ({point.value}) of {package} cannot be loaded: {error}"
    return failed
