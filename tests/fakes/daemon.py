"""A real `ejbd` as a process of its own, and a client for it: what acceptance tests drive. Nothing is faked here."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from ejbd.batch.base import SubmitRequest
from ejbd.batch.local.client import Client
from ejbd.errors import EjbError
from tests.fakes import nursery
from tests.fakes.nursery import Child

ROOT = Path(__file__).resolve().parents[2]
HEAT = ROOT / "examples" / "heat.py"
_MADE: list[Path] = []  # the settings of each daemon of this process

FAST = """
[queues.default]
elasticity = "on"
lambda_s = 3
first_checkpoint_s = 0

[limits]
start_grace_s = 20
missing_grace_s = 20
worker_silence_s = 15
settle_s = 1
checkpoint_timeout_s = 30
launch_timeout_s = 20
lease_s = 3
heartbeat_s = 2
alone_after_s = 0  # tests of what a daemon does that comes back; those of what begins without one set it
"""


class Daemon:
    """`ejbd` on a folder of its own. `start` and `kill` as often as one likes; the folder is what survives.

    It is forked off a process that has imported it (:mod:`tests.fakes.nursery`). It is started as a program where its
    environment is for the interpreter or the linker, and always where `as_program`.
    """

    def __init__(
        self,
        folder: Path,
        toml: str,
        environment: Mapping[str, str] | None = None,
        *,
        as_program: bool = False,
        user: str = "",
    ) -> None:
        self.user = user  # as which it runs ("": as this process does)
        self.as_program = as_program
        self.folder = folder
        self.state = folder / "state"
        self.config = folder / "ejbd.toml"
        self.config.write_text(f'state_dir = "{self.state}"\n' + toml)
        _MADE.append(self.config)
        self.environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | Child | None = None
        self.log = folder / "ejbd.log"
        self.client = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.state / "ejbd.sock"), verify=False),
            base_url="http://ejbd",
            timeout=180,
        )

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self, **environment: str) -> None:
        """Start it and wait until it answers (or has ended: a crash point may be reached before)."""
        self.begin(**environment)
        until(
            lambda: self.ended() or self._answers(),
            "the daemon did not come up",
            300,
            lambda: self.log.read_text(errors="replace")[-3000:],
        )

    def begin(self, **environment: str) -> None:
        """Start it, and wait for nothing."""
        words = ["--config", str(self.config)]
        given = {**self.environment, **environment}
        before_main = {
            name for name in given if name.startswith(("LD_", "PYTHON")) and given[name] != os.environ.get(name)
        }
        if not self.as_program and not before_main:
            self.process = nursery.of_this_process().begin(words, given, self.log, self.user)
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ejbd.daemon", *words],
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def _answers(self) -> bool:
        try:  # not for long: a connection that is kept may lead to a daemon before this one, which stands still
            return self.client.get("/v1/health", timeout=10).status_code in (200, 503)
        except httpx.TransportError:
            return False

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, as an operator."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    # -- what a user does ---------------------------------------------------------------------------------------------

    def submit(self, *argv: str, ranks: int = 16, time: str = "1:00", **body: Any) -> str:
        """Submit a command that the `application` engine can move; its id."""
        return str(self.post_job(*argv, ranks=ranks, time=time, **body)["id"])

    def post_job(
        self, *argv: str, ranks: int = 16, time: str = "1:00", key: str | None = None, **body: Any
    ) -> dict[str, Any]:
        """What is answered to a submission (under the Idempotency-Key `key`)."""
        overrides = {"ntasks": ranks, "time": time, "engine": "application", **body.pop("overrides", {})}
        request = {"command": list(argv), "cwd": str(self.folder), "env": {"PATH": os.environ["PATH"]}, **body}
        if "script" in request:
            del request["command"]
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.client.post("/v1/jobs", json={**request, "overrides": overrides}, headers=headers)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    def heat(self, steps: int, result: Path, pace: str = "20ms", size: int = 32) -> list[str]:
        """The command line of the example."""
        options = ["--steps", str(steps), "--size", str(size), "--pace", pace, "--result", str(result)]
        return [sys.executable, str(HEAT), *options]

    def job(self, id: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/jobs/{id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def explain(self, id: str) -> dict[str, Any]:
        return dict(self.client.get(f"/v1/jobs/{id}/explain").json())

    def events(self, id: str, after: int = 0) -> list[dict[str, Any]]:
        params = {"limit": 1000, "after": after}
        return list(self.client.get(f"/v1/jobs/{id}/events", params=params).json()["events"])

    def kinds(self, id: str) -> list[str]:
        return [event["kind"] for event in self.events(id)]

    def wait(self, id: str, *states: str, timeout_s: float = 120) -> dict[str, Any]:
        """Wait until the job is in one of `states` (default: any final one)."""
        wanted = states or ("completed", "failed", "timeout", "cancelled")
        until(lambda: self.job(id)["state"] in wanted, f"job {id} did not become {wanted}", timeout_s, self.trace(id))
        return self.job(id)

    def wait_event(self, id: str, kind: str, count: int = 1, timeout_s: float = 120) -> None:
        last, found = 0, 0

        def come() -> bool:
            nonlocal last, found
            for event in self.events(id, last):
                last, found = int(event["id"]), found + (event["kind"] == kind)
            return found >= count

        until(come, f"no {kind} x {count}", timeout_s, self.trace(id))

    def trace(self, id: str) -> Callable[[], str]:
        """What to show where a wait for something of the job was in vain."""

        def trace() -> str:
            lines = [f"{e['at_s']:.1f} {e.get('subjob') or ''} {e['kind']} {e['data']}"[:300] for e in self.events(id)]
            return "\n".join([*lines, self.log.read_text(errors="replace")[-3000:]])

        return trace

    def processes(self) -> list[psutil.Process]:
        """Live processes that belong to this daemon's jobs: workers, scripts, ranks."""
        found = []
        spool = str(self.state / "spool").encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:  # read as they are: psutil takes five times as long for each of hundreds
                if spool in (folder / "cmdline").read_bytes().replace(b"\0", b" ") or (
                    b"\0EJB_RENDEZVOUS=" + spool in b"\0" + (folder / "environ").read_bytes()
                ):
                    process = psutil.Process(int(folder.name))
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
            except (OSError, psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


def end_clusters() -> None:
    """End the embedded clusters that daemons of tests have left: a server goes on when its daemon ends."""
    for config in _MADE:
        with suppress(OSError, ValueError):  # gone already, or settings that were wrong on purpose
            settings = tomllib.loads(config.read_text())
            elsewhere = settings.get("local", {}).get("directory")
            sockets = list(Path(settings["state_dir"]).glob("*/socket"))
            for socket in [*sockets, Path(elsewhere, "socket")] if elsewhere else sockets:
                with suppress(EjbError, OSError):  # nothing listens there
                    asyncio.run(Client(socket.parent, 1, 1, timeout_s=10).call("down", start=False, timeout_s=60))
    _MADE.clear()


def until(ready: Callable[[], bool], what: str, timeout_s: float = 120, trace: Callable[[], str] | None = None) -> None:
    """Wait until `ready()`, at most `timeout_s`; then fail with `what` and the trace.

    What `ready` looks into and does not find (a row, a file) is not there yet. Where a look takes long, as on a busy
    machine, the next one is the later: those who wait must not slow down what they wait for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        absent: Exception | None = None
        began = time.monotonic()
        try:
            if ready():
                return
        except (LookupError, FileNotFoundError) as error:
            absent = error
        if time.monotonic() > deadline:
            raise AssertionError(what + ("\n" + trace() if trace else "")) from absent
        time.sleep(min(1.0, max(0.2, 4 * (time.monotonic() - began))))


def ordinary(tag: str, processors: int, walltime_s: float, folder: Path, script: str) -> SubmitRequest:
    """An ordinary job for the embedded cluster, to wait behind."""
    return SubmitRequest(
        tag=tag,
        comment="",
        queue="batch",
        processors=processors,
        walltime_s=walltime_s,
        script="#!/bin/sh\n" + script,
        workdir=folder,
        output=folder / f"{tag}.out",
    )


def first_line() -> str:
    """The first line of a program for this Python; several lines, for the shell, where the path has a space."""
    if " " not in sys.executable:
        return f"#!{sys.executable}\n"
    return f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n"
