"""An ejbd of a command's own, for as long as the command runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ejbd.client.client import Client
from ejbd.errors import Code, EjbError
from ejbd.files.paths import LONGEST_SOCKET_PATH, SOCKET_NAME
from ejbd.files.shortfolder import short_folder

START_S = 180.0
STOP_S = 20.0


@contextmanager
def own_daemon(folder: Path, settings: str, environment: Mapping[str, str], *, apart: bool = False) -> Iterator[Client]:
    """Start ejbd with its state in `folder`, `settings` (TOML) and these variables beside its own. Raises EjbError.

    `apart`: its socket lies in a folder of this machine's own. It does so as well where its path would be too long.
    """
    with ExitStack() as stack:
        sock = folder / "state" / SOCKET_NAME
        if apart or len(bytes(sock)) > LONGEST_SOCKET_PATH:
            sock = stack.enter_context(short_folder()) / SOCKET_NAME
        where = f'state_dir = "{folder / "state"}"\nsocket = "{sock}"\n'
        yield from _running(folder, f'{where}worker_python = "{sys.executable}"\n{settings}', environment, sock)


def _running(folder: Path, settings: str, environment: Mapping[str, str], sock: Path) -> Iterator[Client]:
    config, log = folder / "ejbd.toml", folder / "ejbd.log"
    config.write_text(settings)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "ejbd.daemon", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, **environment},
        )
    try:
        daemon = Client(socket=str(sock))
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
