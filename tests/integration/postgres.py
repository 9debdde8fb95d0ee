"""A private PostgreSQL from the system's own binaries, reached by a unix socket only."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

START_TIMEOUT_S = 60.0
SUPERUSER = "ejb"


def binaries() -> Path | None:
    """The folder of the newest installed server's programs: Debian's place, or wherever PATH finds `postgres`."""
    found = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/postgres") if (p.parent / "initdb").exists()]
    if found:
        return max(found, key=lambda folder: float(folder.parent.name))
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


def why_not() -> str | None:
    """The reason why no server can be started here; None: it can."""
    if binaries() is None:
        return "PostgreSQL's server programs are not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "running as root, and there is no user 'postgres' to run the server as"
        if shutil.which("setpriv") is None:
            return "running as root, and setpriv (util-linux) is not installed"
    return None


class PostgresServer:
    """A server with its data in a folder of its own under the temporary directory; `stop` leaves nothing behind.

    `disk`: an empty folder to have the data in, such as a small file system.
    """

    def __init__(self, *, fsync: bool = False, disk: Path | None = None) -> None:
        self._numbers = itertools.count(1)
        self._fsync = fsync
        folder = binaries()
        if folder is None:
            raise RuntimeError(why_not())
        self._bin = folder
        self._home = Path(tempfile.mkdtemp(prefix="ejb-pg-"))  # its path is short enough for a socket's
        self._data = disk / "data" if disk is not None else self._home / "data"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{SUPERUSER}@/{database}?host={self._home}"

    def new_database(self, options: str = "") -> str:
        """Make an empty database; returns its URL."""
        name = f"ejb{next(self._numbers)}"
        self._sql(f'CREATE DATABASE "{name}" {options}')
        return self.url(name)

    def copy(self, template: str, url: str) -> None:
        """Make the database of `url` anew as `template` is, which nobody is connected to."""
        name, of = (one.partition("@/")[2].partition("?")[0] for one in (url, template))
        self._sql(f'DROP DATABASE "{name}"', f'CREATE DATABASE "{name}" TEMPLATE "{of}"')

    def start(self) -> None:
        with open(self._home / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._as_its_user(),
                    str(self._bin / "postgres"),
                    *("-D", str(self._data), "-k", str(self._home)),
                    *("-c", "listen_addresses=", "-c", "shared_buffers=16MB", "-c", "max_connections=40"),
                    *("-c", f"fsync={'on' if self._fsync else 'off'}"),
                ],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        ready = [str(self._bin / "pg_isready"), "-q", "-h", str(self._home), "-d", "postgres", "-U", SUPERUSER]
        while subprocess.run(ready, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self._home / 'log').read_text()}")
            time.sleep(0.05)

    def backends(self) -> list[psutil.Process]:
        """The server's processes that serve connections and keep its data; none where it is down."""
        with suppress(psutil.Error):
            if self._process is not None and self._process.poll() is None:
                return psutil.Process(self._process.pid).children()
        return []

    def up(self) -> None:
        """Started again where it has ended by itself, as it does on a full disk."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def halt(self) -> None:
        """End the server as a reboot would; the data stay, and `start` brings it back."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # a fast shutdown: open connections are cut
            try:
                self._process.wait(timeout=START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self._home, ignore_errors=True)

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            for folder in {self._home, self._data.parent}:
                os.chown(folder, account.pw_uid, account.pw_gid)
        made = subprocess.run(
            [
                *self._as_its_user(),
                str(self._bin / "initdb"),
                *("-D", str(self._data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"),
            ],
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr}")

    def _sql(self, *statements: str) -> None:
        words = [str(self._bin / "psql"), "-qX", "-h", str(self._home), "-U", SUPERUSER, "-d", "postgres"]
        subprocess.run(
            [*words, *(word for statement in statements for word in ("-c", statement))], check=True, capture_output=True
        )

    def _as_its_user(self) -> list[str]:
        """The server refuses to run as root. It ends with us, however we end."""
        if shutil.which("setpriv") is None:
            return []
        become = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        return ["setpriv", "--pdeathsig=INT", *become, "--"]
