"""A real worker process against `ManagerServer`, and the launches that tests give it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.manager_server import Json, ManagerServer

WORKERS = Path(__file__).resolve().parents[2] / "workers"
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"
PATIENT = PROGRAM.replace("from", "import ejb_worker.agent as agent; agent.SURE_S = agent.QUIET_SURE_S = 3.0; from", 1)
"""A worker that holds each end for so long that a test can come in between, however busy the machine is."""


def worker_command(subjob_dir: Path, *more: str, program: str = PROGRAM) -> list[str]:
    # Compute nodes may have another Python: EJB_WORKER_PYTHON runs these tests with it.
    python = os.environ.get("EJB_WORKER_PYTHON", sys.executable)
    words = [python, "-I", "-S", "-c", program, str(WORKERS)]
    return [*words, "agent", "--subjob-dir", str(subjob_dir), "--node", "n1", "--grace-s", "0.5", *more]


def eventually(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """The first true value of `condition`. Raises AssertionError after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether process `pid` runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


class World:
    """One spool, one manager, one worker."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        job = os.urandom(4).hex()  # by which workers on one machine share a folder
        self.manager = ManagerServer(spool, job=job, subjob=f"{job}.1")
        self.job_dir = self.manager.job_dir
        self.output = spool / "job.out"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str, processors: int = 3, program: str = PROGRAM, **popen: Any) -> subprocess.Popen[bytes]:
        """Start the worker and wait until it has registered. 3 processors: never the number of CPUs by chance."""
        self.manager.start()
        command = worker_command(self.manager.subjob_dir, "--processors", str(processors), *more, program=program)
        self.process = subprocess.Popen(command, **popen)
        self.manager.wait_for(lambda: self.manager.registrations)
        return self.process

    @property
    def worker(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def launch_file(self, *argv: str, size: int = 1, ordinal: int = 0, **env: str) -> Path:
        path = self.job_dir / "launches" / f"{ordinal}.json"
        path.parent.mkdir(exist_ok=True)
        content = {"argv": argv, "cwd": str(self.spool), "env": {"PATH": os.environ["PATH"], **env}, "size": size}
        path.write_text(json.dumps(content))
        return path

    def launch_payload(
        self, file: Path, *, ranks: int = 1, epoch: int = 1, engine: str = "application", restart: int | None = None
    ) -> Json:
        return {
            "epoch": epoch,
            "size": ranks,
            "engine": engine,
            "argv": [],
            "cwd": "",
            "launch_file": str(file),
            "ranks": [{"rank": rank, "processor": rank % 3} for rank in range(ranks)],
            "epoch_dir": str(self.epoch_dir(epoch)),
            "restart_dir": None if restart is None else str(self.epoch_dir(restart) / "checkpoint"),
        }

    def launch(
        self, *argv: str, ranks: int = 1, epoch: int = 1, env: dict[str, str] | None = None, **more: Any
    ) -> dict[int, int]:
        """Launch all ranks here, with these variables besides PATH; their process ids by rank."""
        file = self.launch_file(*argv, size=ranks, ordinal=0, **(env or {}))
        payload = self.launch_payload(file, ranks=ranks, epoch=epoch, **more)
        result = self.manager.run("launch", payload, epoch=epoch)
        assert result["ok"], result
        return {int(rank): pid for rank, pid in result["data"]["pids"].items()}

    def epoch_dir(self, epoch: int) -> Path:
        return self.job_dir / "epochs" / str(epoch)

    def rank_output(self, rank: int, epoch: int = 1, stream: str = "out") -> str:
        return (self.epoch_dir(epoch) / "output" / f"{rank}.{stream}").read_text()

    def collected(self) -> str:
        """The job's output as it is now."""
        return self.output.read_text() if self.output.exists() else ""

    def exits(self, count: int) -> dict[int, int]:
        """The codes of `count` ranks that ended by themselves."""
        reports = self.manager.wait_for(lambda: len(self.manager.of_kind("rank-exit")) >= count)
        assert reports
        return {report["rank"]: report["code"] for report in self.manager.of_kind("rank-exit")}

    def lead(self, script: Json | None = None, *, run: int = 1, processors: int = 4, **more: Any) -> Json:
        payload = {"run": run, "output": str(self.output), "error": None, "script": script, "processors": processors}
        return self.manager.run("lead", {**payload, **more})

    def script(self, text: str, *args: str, **more: Any) -> Json:
        """The `script` part of a `lead` payload, its files written."""
        path, env = self.job_dir / "slurm_script", self.job_dir / "env.json"
        path.write_text(text)
        env.write_text(json.dumps({"PATH": os.environ["PATH"], "HOME": str(self.spool), "MINE": "as submitted"}))
        common = {"path": str(path), "args": list(args), "cwd": str(self.spool), "env_file": str(env)}
        return {**common, "job_name": "the name", "restartable": False, "ended_launches": {}, **more}

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.manager.stop()
        # A worker that was killed cannot tidy up.
        for folder in Path("/tmp").glob(f"ejb-{os.getuid()}-*{self.manager.job}-*"):
            # What it started is still ending, and takes its own files away meanwhile.
            eventually(partial(_removed, folder))


@contextmanager
def world(spool: Path) -> Iterator[World]:
    value = World(spool)
    try:
        yield value
    finally:
        value.close()
