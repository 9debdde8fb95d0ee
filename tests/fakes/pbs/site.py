"""A fake PBS for the length of a test: brought up in a folder of its own, told to misbehave, taken down."""

from __future__ import annotations

import json
import marshal
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).with_name("client.py")
ROOT = Path(__file__).parents[3]
COMMANDS = ("qsub", "qstat", "qdel", "qalter", "qhold", "qrls", "qsig", "pbsnodes", "pbsdsh")
MAUI = ("showbf", "showres")


@dataclass
class PbsSite:
    """`dialect` openpbs or torque; `scheduler` easy, or fifo (no backfilling that protects anybody)."""

    folder: Path
    dialect: str
    nodes: int
    cpus: int
    maui: bool
    users: bool = False
    server: subprocess.Popen[bytes] | None = None

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def path(self) -> str:
        return f"{self.bin}:/usr/local/bin:/usr/bin:/bin"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": self.path, "TZ": "UTC0", "LC_ALL": "C"}

    def start(self, state: str = "") -> None:
        """`state`: what the server is to know, in place of what it knew."""
        if state:
            (self.folder / "state.json").write_text(state)
        argv = [sys.executable, "-m", "tests.fakes.pbs.server", str(self.folder)]
        with open(self.folder / "log", "ab") as log:
            self.server = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 180
        while not (self.folder / "server").exists() or not self._answers():
            assert self.server.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the fake PBS does not come up"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            self.control("nothing")
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """As a crash would; jobs live on."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        for name in ("server", "control", "maui"):
            (self.folder / name).unlink(missing_ok=True)

    def kill_mom(self, node: str) -> None:
        """SIGKILL to the moms of the jobs that are led from a node; the server sees it down, the jobs' processes live.

        `start_mom` starts them again.
        """
        for job in self._stored():
            if job["state"] in "RE" and job["shares"][0][0] == node:
                os.kill(int((self.folder / "jobs" / f"{job['number']}.pid").read_text()), signal.SIGKILL)
        self.control("mom", name=node, up=False)

    def start_mom(self, node: str) -> None:
        self.control("mom", name=node, up=True)

    def shorten(self, id: str, walltime_s: int) -> None:
        """As an operator may, on a running job."""
        self.control("walltime", job=int(id.partition(".")[0]), walltime_s=walltime_s)

    def control(self, what: str, **more: Any) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(self.folder / "control"))
            client.sendall(json.dumps({"control": what, **more}).encode() + b"\n")
            client.recv(100)

    def mischief(self, **what: Any) -> None:
        """From now on: hang=["qalter"], garbage=["qstat"], fails={"qsub": [text, code]}, no_jobs, spoil, stale_s."""
        temporary = self.folder / "mischief.tmp"
        temporary.write_text(json.dumps(what))
        temporary.replace(self.folder / "mischief.json")

    def run(
        self, *argv: str, stdin: str = "", cwd: Path | None = None, user: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """What somebody types. The server is asked at once, without the command's process, where it is there."""
        environment = {**self.environment, **({"FAKE_PBS_USER": user} if user else {})}
        if not self.users and argv[0] not in ("pbsdsh", *MAUI):
            with suppress(ConnectionError, FileNotFoundError):
                return self._asked(argv, stdin, cwd, environment)
        return subprocess.run(
            [str(self.bin / argv[0]), *argv[1:]],
            env=environment,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def _asked(
        self, argv: Sequence[str], stdin: str, cwd: Path | None, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """As `client.py` asks. Raises ConnectionError or FileNotFoundError where no server listens."""
        request = {
            "command": argv[0],
            "words": list(argv[1:]),
            "cwd": os.path.realpath(cwd or "."),
            "user": environment.get("FAKE_PBS_USER") or pwd.getpwuid(os.geteuid()).pw_name,
            "environment": environment,
            "stdin": stdin if argv[0] == "qsub" else "",
        }
        data = marshal.dumps(request, 2)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(self.folder / "server"))
            client.sendall(len(data).to_bytes(8, "big") + data)
            with client.makefile("rb") as file:
                answer = marshal.loads(file.read(int.from_bytes(file.read(8), "big")))
        return subprocess.CompletedProcess(list(argv), answer["code"], answer["out"], answer["err"])

    def _stored(self) -> list[dict[str, Any]]:
        """The jobs as the server has written them down."""
        stored = json.loads((self.folder / "state.json").read_text()) if (self.folder / "state.json").exists() else {}
        return list(stored.get("jobs", []))

    def state(self) -> str:
        """What the server has written down: :meth:`start` may bring it back."""
        return (self.folder / "state.json").read_text()

    def stored(self, id: str) -> dict[str, Any]:
        """A job as the server has written it down, without what it plans."""
        job = next(job for job in self._stored() if job["number"] == int(id.partition(".")[0]))
        return {name: value for name, value in job.items() if name != "estimate"}

    def numbers(self) -> list[int]:
        """Jobs that have not ended."""
        return [job["number"] for job in self._stored() if job["state"] not in "FC"]

    def empty(self) -> None:
        """Every job ended, and no other misbehaviour."""
        self.mischief()
        if numbers := self.numbers():
            self.run("qdel", *map(str, numbers))
        deadline = time.monotonic() + 180
        while self.numbers():
            assert time.monotonic() < deadline, "the jobs of a test did not end"
            time.sleep(0.05)

    def down(self) -> None:
        """Every job ended, the server gone."""
        if self.server is None or self.server.poll() is not None:
            self.start()
        assert self.server is not None
        self.empty()
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(timeout=30)


@contextmanager
def pbs_site(
    dialect: str,
    *,
    maui: bool = False,
    nodes: int = 8,
    cpus: int = 4,
    prefix: str = "n",
    head: str = "head",
    first: int = 1,
    node_fail_requeue_s: float = 310.0,
    queues: Sequence[Mapping[str, Any]] = (),
    default_queue: str = "batch",
    users: bool = False,
) -> Iterator[PbsSite]:
    """OpenPBS orders strictly; Torque has Maui's backfilling, or a scheduler that starts whatever fits.

    `queues`: as :class:`tests.fakes.pbs.world.Queue` has them; none: an execution queue `batch`. `users`: root runs it
    for real users. The kernel says which of them asks, and a job and its mom run as its owner.
    """
    folder = Path(tempfile.mkdtemp(prefix="ejb-pbs-"))
    site = PbsSite(folder, dialect, nodes, cpus, maui, users)
    python, client = sys.executable, CLIENT
    try:
        (folder / "bin").mkdir()
        (folder / "jobs").mkdir()
        if users:  # others cannot read a checkout of root's, nor the interpreter in it
            folder.chmod(0o755)
            (folder / "jobs").chmod(0o1777)
            python, client = "/usr/bin/python3", folder / CLIENT.name
            for file in (CLIENT, CLIENT.with_name("mom.py")):
                shutil.copyfile(file, folder / file.name)
                (folder / file.name).chmod(0o644)
        settings = {
            "dialect": dialect,
            "scheduler": "easy" if maui or dialect == "openpbs" else "fifo",
            "head": head,
            "prefix": prefix,
            "nodes": nodes,
            "cpus": cpus,
            "maui": maui,
            "kill_delay": 5.0,
            "first": first,
            "node_fail_requeue": node_fail_requeue_s,
            "queues": list(queues),
            "default_queue": default_queue,
            "users": users,
        }
        (folder / "site.json").write_text(json.dumps(settings))
        for name in (*COMMANDS, *(MAUI if maui else ()), *(("pbs_rstat",) if dialect == "openpbs" else ())):
            file = folder / "bin" / name
            words = [python, "-S", "-E", str(client), str(folder), name]
            file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            file.chmod(0o755)
        site.start()
        yield site
    finally:
        site.down()
        shutil.rmtree(folder, ignore_errors=True)
