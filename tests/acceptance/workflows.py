"""How a test of workflows on a real batch system begins: a daemon before it, a client, and where the user works."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ejbd.client.client import Client
from tests.fakes.daemon import FAST, Daemon


@contextmanager
def working(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    toml: str,
    environment: Mapping[str, str] | None = None,
    more: str = "",
) -> Iterator[tuple[Daemon, Client, Path]]:
    """`toml`: which batch system, and how often it is polled; `more`: settings of rooms of their own."""
    daemon = Daemon(folder, f'{toml}\nworker_python = "{sys.executable}"\n{FAST}\n{more}', environment)
    daemon.start()
    try:
        work = folder / "work"
        work.mkdir()
        monkeypatch.chdir(work)
        with Client(socket=str(daemon.state / "ejbd.sock")) as client:
            yield daemon, client, work
    finally:
        daemon.stop()
