"""A process that has imported all of `ejbd` and forks daemons off: a soak of a thousand kills cannot wait a second of
imports for each. What is forked is the daemon itself, from its `main` on.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BESIDE = (
    *("psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "alembic.command"),
    *("uvicorn.protocols.http.auto", "uvicorn.lifespan.on", "uvicorn.loops.auto", "httpx"),
)
_NOT_THE_DAEMONS = ("ejbd.sim", "ejbd.studies", "ejbd.cli", "ejbd.client", "ejbd.doctor", "ejbd.store.migrations.")


class Child:
    """A daemon that was forked off, as far as tests use a `Popen`. How it ended is not told: `returncode` is -1."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:  # over already, and reaped
            self._handle, self.returncode = None, -1

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._look(timeout) is None:
            raise subprocess.TimeoutExpired("ejbd", timeout or 0)
        return -1

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._handle is not None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self._handle is not None and select.select([self._handle], [], [], timeout)[0]:
            os.close(self._handle)
            self._handle, self.returncode = None, -1
        return self.returncode


class Nursery:
    """`begin` as often as one likes; daemons outlive `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.nursery"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lock = threading.Lock()
        self._ask(None)  # until everything is imported

    def begin(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
        return Child(self._ask({"argv": list(argv), "environment": dict(environment), "log": str(log)}))

    def _ask(self, what: object) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, "the nursery has ended"
        return int(answer)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def _import_all() -> None:
    import ejbd

    for found in pkgutil.walk_packages(ejbd.__path__, "ejbd."):
        if not found.name.startswith(_NOT_THE_DAEMONS) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for name in _BESIDE:
        importlib.import_module(name)
    assert threading.active_count() == 1, "what is forked off a process with threads may hang"


def _fork(asked: dict[str, object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        environment = asked["environment"]
        assert isinstance(environment, dict) and isinstance(asked["argv"], list)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(str(asked["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for at, descriptor in enumerate((nothing, log, log)):
            os.dup2(descriptor, at)
        from ejbd.daemon import main

        code = main(asked["argv"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    for line in sys.stdin:
        asked = json.loads(line)
        print(_fork(asked) if asked else 0, flush=True)


if __name__ == "__main__":
    _serve()
