"""A process that has imported all of `ejbd` and forks daemons off: the tests start hundreds, and each would import for
two seconds of a processor. What is forked is the daemon itself, from its `main` on. :mod:`tests.fakes.typed` has the
same for `ejb`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import pwd
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DAEMONS = "tests.fakes.nursery"
_BESIDE = (
    *("psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "alembic.command"),
    *("uvicorn.protocols.http.auto", "uvicorn.lifespan.on", "uvicorn.loops.auto", "httpx"),
    *(
        "importlib.readers",
        "encodings.idna",
        "encodings.unicode_escape",
        "stringprep",
        "asyncio.unix_events",
        "gzip",
        "email.parser",
        "http.cookies",
        "difflib",
        "_strptime",
    ),
)
_NOT_THE_DAEMONS = ("ejbd.sim", "ejbd.studies", "ejbd.cli", "ejbd.client", "ejbd.doctor", "ejbd.store.migrations.")


class Child:
    """What was forked off, as far as tests use a `Popen`."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        self._handle = os.pidfd_open(pid)  # it is there, dead or alive, until the nursery is asked how it ended

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("what was forked off", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], timeout)[0]:
            self.returncode = self._nursery.ended(self.pid)
            os.close(self._handle)
        return self.returncode


class Nursery:
    """`begin` as often as one likes; what it has begun outlives `close`. `module` calls :func:`serve`."""

    def __init__(self, module: str = DAEMONS) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lock = threading.Lock()
        self._ask(None)  # until everything is imported

    def begin(self, argv: Sequence[str], environment: Mapping[str, str], log: Path, user: str = "") -> Child:
        """`user`: as which it runs ("": as this process does)."""
        return self.begin_in("/", argv, environment, (os.devnull, str(log), str(log)), user)

    def begin_in(
        self, folder: str, argv: Sequence[str], environment: Mapping[str, str], files: Sequence[str], user: str = ""
    ) -> Child:
        """`folder`: where it works ("/": where the nursery does). `files`: what it reads, and writes to as its
        standard output and its standard error.
        """
        asked = {"argv": list(argv), "environment": dict(environment), "files": list(files)}
        return Child(self._ask({**asked, "folder": folder, "user": user}), self)

    def ended(self, pid: int) -> int:
        """How a daemon ended, as `Popen.returncode` tells it; it is waited for."""
        return self._ask({"ended": pid})

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

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
    gc.collect()  # each daemon does, as it starts: of what is frozen here it walks through nothing again
    gc.freeze()


def _tables_from_a_copy() -> None:
    """A new SQLite file begins as a copy of one with all tables: to make them takes half a second of a processor each
    time. What a daemon started as a program does, and `tests/integration/test_store_migrations.py`, makes them.
    """
    from sqlalchemy import URL, Engine, make_url

    from ejbd.store import schema, store
    from ejbd.store.engine import database_file, is_sqlite, writer_engine

    with tempfile.TemporaryDirectory() as folder:
        schema.upgrade(make_url(f"sqlite:///{folder}/tables"))
        tables = Path(folder, "tables").read_bytes()

    def opened(url: URL) -> Engine:
        if is_sqlite(url) and not database_file(url).exists():
            with contextlib.suppress(OSError):  # a full disk, or another daemon was first: as without a copy
                _place(database_file(url), tables)
        return writer_engine(url)

    vars(store)["writer_engine"] = opened


def _place(path: Path, content: bytes) -> None:
    """All of it at once, and not where there is a file."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.link(name, path)
    finally:
        Path(name).unlink()


def _fork(asked: dict[str, object], main: Callable[[list[str]], int]) -> int:
    assert isinstance(asked["files"], list)
    ways = (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_APPEND] * 2)
    # Before the answer: who asked may close its own end of a pipe then.
    files = [os.open(path, way, 0o600) for path, way in zip(asked["files"], ways, strict=True)]
    pid = os.fork()
    if pid:
        for descriptor in files:
            os.close(descriptor)
        return pid
    code = 70
    try:
        environment = asked["environment"]
        assert isinstance(environment, dict) and isinstance(asked["argv"], list)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        for at, descriptor in enumerate(files):
            os.dup2(descriptor, at)
            os.close(descriptor)
        if asked["folder"] != "/":
            os.chdir(str(asked["folder"]))
        if asked["user"]:
            user = pwd.getpwnam(str(asked["user"]))
            os.initgroups(user.pw_name, user.pw_gid)
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        code = main(asked["argv"])
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # its reader has gone; or it was closed
                stream.flush()
        os._exit(code)


def serve(main: Callable[[list[str]], int]) -> None:
    """Fork off what is asked for on standard input, until that ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is None:
            answer = 0
        elif "ended" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["ended"], 0)[1])
        else:
            answer = _fork(asked, main)
        print(answer, flush=True)


def _daemon(argv: list[str]) -> int:
    from ejbd.daemon import main

    return main(argv)


_OF_THIS_PROCESS: dict[str, Nursery] = {}


def of_this_process(module: str = DAEMONS) -> Nursery:
    """The one of this process of pytest, made when it is first wanted. It ends with that process."""
    found = _OF_THIS_PROCESS.get(module)
    if found is None or not found.lives:  # a test that stood still has its processes killed
        found = _OF_THIS_PROCESS[module] = Nursery(module)
    return found


if __name__ == "__main__":
    _import_all()
    _tables_from_a_copy()
    serve(_daemon)
