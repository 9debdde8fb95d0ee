"""What the tests of batch scripts share: a daemon, a folder to submit from, and scripts written into it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from ejbd.batch.local import LocalBatch
from tests.fakes.daemon import FAST, Daemon, ordinary, until
from tests.fakes.me import ME

POLL_S = 0.6
LAUNCHERS_ERRORS = ("srun: error: ", "mpirun: error: ", "mpiexec: error: ")

# Ranks that print in small pieces, all at once, so that lines would be torn if anybody could tear them.
CHATTER = """\
import os, sys
rank = os.environ["EJB_RANK"]
for line in range(int(sys.argv[1])):
    for part in ("rank ", rank, " line ", str(line), " " + "x" * 60, "\\n"):
        os.write(1, part.encode())
"""

# Ranks that count, one line a step, and can be moved.
COUNTER = """\
import os, signal, sys, time
rank, asked = os.environ["EJB_RANK"], []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
step, restart = 0, os.environ.get("EJB_RESTART_DIR")
if restart:
    with open(f"{restart}/{rank}.txt") as file:
        step = int(file.read())
while step < int(sys.argv[1]) and not asked:
    print("rank", rank, "step", step, flush=True)
    step += 1
    time.sleep(0.02)
if asked:
    path = os.path.join(os.environ["EJB_CHECKPOINT_DIR"], f"{rank}.txt")
    with open(path + ".tmp", "w") as file:
        file.write(str(step))
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    sys.exit(85)
"""


@dataclass
class Site:
    """A daemon and a user's folder on it."""

    daemon: Daemon
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def post(self, script: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, **body: Any) -> Any:
        """The answer to a submission of this script as it is, elastic even where no launch is seen in it."""
        body.setdefault("overrides", {}).setdefault("elastic", "on")
        known = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        request = {
            "script": textwrap.dedent(script),
            "cwd": str(cwd or self.folder),
            "env": {**known, **self.environment, **(env or {})},
            **body,
        }
        return self.daemon.client.post("/v1/jobs", json=request)

    def submit(self, script: str, **how: Any) -> str:
        answer = self.post(script, **how)
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    def run(self, script: str, *, code: int | None = 0, **how: Any) -> str:
        """Submit, wait for the end, and return the default output file's text."""
        id = self.submit(script, **how)
        job = self.daemon.wait(id, timeout_s=60)
        output = Path(how.get("cwd") or self.folder) / f"ejb-{id}.out"
        text = output.read_text() if output.exists() else ""
        assert job["exit_code"] == code, f"{job['state']} {job['exit_code']} {job['reason']}\n{text}"
        assert job["state"] == ("failed" if code else "completed")
        return text


def said(text: str) -> list[str]:
    """The lines of an output without those by which a launcher tells of ranks that died."""
    return [line for line in text.splitlines() if not line.startswith(LAUNCHERS_ERRORS)]


def make_home(folder: Path) -> Path:
    """A user's folder with the programs that the scripts start."""
    home = folder / "home"
    home.mkdir()
    (home / "chatter.py").write_text(CHATTER)
    (home / "counter.py").write_text(COUNTER)
    return home


@contextmanager
def running_site(folder: Path, toml: str, environment: dict[str, str]) -> Iterator[Site]:
    """A daemon with these settings and variables; in the end it is stopped."""
    daemon = Daemon(folder, toml, environment)
    daemon.start()
    assert not daemon.ended(), daemon.log.read_text()
    try:
        yield Site(daemon, make_home(folder))
    finally:
        daemon.stop()


@contextmanager
def local_site(folder: Path, *, nodes: int = 4, processors: int = 4) -> Iterator[Site]:
    """A daemon with an embedded cluster of its own; in the end both are gone."""
    toml = f'poll_s = {POLL_S}\nworker_python = "{sys.executable}"\n[local]\nnodes = {nodes}\n'
    daemon = Daemon(folder, toml + f"processors_per_node = {processors}\n" + FAST)
    daemon.start()
    assert not daemon.ended(), daemon.log.read_text()
    try:
        yield Site(daemon, make_home(folder))
    finally:
        daemon.stop()
        down = [sys.executable, "-m", "ejbd.batch.local", "down", str(daemon.state / "cluster")]
        subprocess.run(down, check=True, capture_output=True, timeout=90)


class Others:
    """Other people's jobs on the embedded cluster; each ends when it is told to."""

    def __init__(self, site: Site, nodes: int = 4, processors: int = 4) -> None:
        self._folder = site.folder
        self._batch = LocalBatch(site.daemon.state / "cluster", nodes, processors)
        self._ids: dict[str, str] = {}

    def hold(self, name: str, processors: int, walltime_s: float = 600) -> None:
        """Take processors and wait until they are taken."""
        script = f"until [ -e '{self._folder}/end-{name}' ]; do sleep 0.1; done"
        (self._folder / f"end-{name}").unlink(missing_ok=True)
        request = ordinary(name, processors, walltime_s, self._folder, script)
        self._ids[name] = asyncio.run(self._batch.submit(ME, request))
        until(lambda: self._state(name) == "running", f"{name} did not start")

    def end(self, *names: str) -> None:
        for name in names or tuple(self._ids):
            (self._folder / f"end-{name}").touch()
        for name in names or tuple(self._ids):
            until(partial(self._ended, name), f"{name} did not end")

    def cancel_batch_job(self, batch_id: str) -> None:
        """As an operator would, behind EJB's back."""
        asyncio.run(self._batch.cancel(ME, [batch_id]))

    def unfinished(self) -> list[str]:
        """Names of jobs that run or wait."""
        view = asyncio.run(self._batch.observe())
        return [job.name for job in view.jobs if not job.state.ended]

    def _ended(self, name: str) -> bool:
        return self._state(name) not in ("pending", "running")

    def _state(self, name: str) -> str:
        view = asyncio.run(self._batch.observe())
        return next((str(job.state) for job in view.jobs if job.id == self._ids[name]), "ended")


def sleeping(seconds: str) -> list[psutil.Process]:
    """Live processes `sleep SECONDS`: choose a number that nobody else sleeps."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cmdline() == ["sleep", seconds]:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
