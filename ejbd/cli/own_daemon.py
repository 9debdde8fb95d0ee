"""An ejbd of a command's own, for as long as the command runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ejbd.client.client import Client
from ejbd.errors import Code, EjbError

START_S = 60.0
STOP_S = 20.0


@contextmanager
def own_daemon(folder: Path, settings: str, environment: Mapping[str, str]) -> Iterator[Client]:
    """Start ejbd with its state in `folder`, `settings` (TOML) and these variables beside its own. Raises EjbError."""
    config, log = folder / "ejbd.toml", folder / "ejbd.log"
    config.write_text(f'state_dir = "{folder / "state"}"\nworker_python = "{sys.executable}"\n{settings}')
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "ejbd.daemon", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, **environment},
        )
    try:
        daemon = Client(socket=str(folder / "state" / "ejbd.sock"))
        deadline = time.monotonic() + START_S
        while not _answers(daemon):
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace").strip().splitlines()
                raise EjbError(Code.UNREACHABLE, f"ejbd did not start: {said[-1] if said else 'it said nothing'}")
            time.sleep(0.2)
        yield daemon
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(daemon: Client) -> bool:
    try:
        return bool(daemon.get("/v1/health")["ok"])
    except EjbError:
        return False
