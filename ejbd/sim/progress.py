"""How far what takes long has come: told by the simulator, heard by what listens (the command line)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Listener(Protocol):
    """Hears what is under way and which share of it is done (0 to 1; None: not known)."""

    def __call__(self, what: str, done: float | None, /) -> None: ...


def _unheard(what: str, done: float | None, /) -> None:
    pass


_listener: Listener = _unheard


def tell(what: str, done: float | None = None) -> None:
    """Say how far it is."""
    _listener(what, done)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Let `listener` hear what is told within."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


@contextmanager
def part(what: str, begin: float, end: float) -> Iterator[None]:
    """What is told within is the part from `begin` to `end` of something larger."""
    outer = _listener

    def inner(detail: str, done: float | None, /) -> None:
        outer(f"{what}: {detail}" if done is None else what, begin + (end - begin) * (done or 0.0))

    with heard_by(inner):
        tell("", 0.0)
        yield
