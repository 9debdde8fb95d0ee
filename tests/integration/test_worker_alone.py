"""Real workers of a J0 on the embedded cluster, and no manager anywhere: what they begin by themselves."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ejbd.batch.base import WorkerScript
from ejbd.batch.local import LocalBatch
from ejbd.batch.starter import BEGINS_ALONE, alone_words
from ejbd.core.view import BatchState
from ejbd.manager.hands import orders
from ejbd.manager.hands.spool import Spool
from tests.fakes.daemon import ordinary
from tests.fakes.me import ME
from tests.fakes.worker_process import eventually

JOB, J0, SECRET = "7", "7.0", "0" * 64
SCRIPT = """#!/bin/bash -u
echo "script $1 in $PWD $GREETING ${SLURM_NTASKS-unset}"
srun -n 4 -- sh -c 'echo rank $EJB_RANK'
echo trouble >&2
exit 5
"""


class Site:
    """A spool with one J0 of two virtual nodes, whose order is `SCRIPT`."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.spool = Spool(folder / "spool")
        self.spool.prepare()
        self.spool.make_job(JOB, env={"PATH": os.environ["PATH"], "GREETING": "hello"}, script=SCRIPT, command=None)
        self.j0 = self.spool.make_subjob(JOB, J0, SECRET, binding="none")
        self.spool.publish_url("http://127.0.0.1:9")  # nobody listens there
        order = {
            "id": "1", "after_s": 0.5, "processors": 4, "script": str(self.spool.script_file(JOB)),
            "digest": hashlib.sha256(SCRIPT.encode()).hexdigest(), "args": ["one"], "cwd": str(folder),
            "env_file": str(self.spool.env_file(JOB)), "output": str(folder / "job-\x02.out"), "error": None,
            "variables": {"SLURM_NTASKS": None},
        }  # fmt: skip
        orders.give(self.spool, JOB, J0, SECRET, {**order, **changes}, None)
        self.exit_file = self.spool.exit_file(JOB, J0)

    @property
    def said(self) -> str:
        output = self.j0 / f"ejb-{J0}.out"
        return output.read_text() if output.exists() else ""

    def is_alone(self) -> bool:
        return "the manager is away" in self.said

    def output(self) -> list[Path]:
        return list(self.folder.glob("job-*.out"))

    def away(self) -> dict[str, int]:
        """Each worker's word that it finds no manager, and when it was written last (ns of the file system)."""
        return {path.name: path.stat().st_mtime_ns for path in (self.j0 / "alone").glob("away-*.json")}

    async def start(self, batch: LocalBatch) -> str:
        """Submit J0; its id."""
        script = batch.worker_script(WorkerScript(sys.executable, self.spool.install_worker(), self.j0, self.exit_file))
        return await batch.submit(ME, ordinary(f"ejb-{J0}", 4, 600, self.j0, script.removeprefix("#!/bin/sh\n")))

    def ended(self) -> int:
        """The code that J0's script has written."""
        eventually(self.exit_file.exists)
        return int(self.exit_file.read_text())


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[LocalBatch]:
    try:
        yield LocalBatch(folder / "cluster", 2, 2)
    finally:
        down = [sys.executable, "-m", "ejbd.batch.local", "down", str(folder / "cluster")]
        await asyncio.to_thread(subprocess.run, down, check=True, timeout=180, capture_output=True)


async def cancelled(batch: LocalBatch, id: str) -> None:
    await batch.cancel(ME, [id])
    for _ in range(600):
        if (outcome := (await batch.outcomes({id: Path("none")})).get(id)) is not None:
            assert outcome.state is BatchState.CANCELLED
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it was not cancelled")


async def test_workers_that_find_no_manager_begin_the_job_as_it_was_submitted(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with cluster(tmp_path) as batch:
        id = await site.start(batch)
        assert site.ended() == 5
        assert orders.begun_s(site.spool, JOB, J0) is not None
        assert not orders.withdraw(site.spool, JOB, J0), "a daemon that comes now is too late"
        said = (tmp_path / f"job-{id}.out").read_text().splitlines()
        assert said[0] == f"script one in {tmp_path} hello unset"
        assert sorted(said[1:5]) == [f"rank {rank}" for rank in range(4)] and said[5:] == ["trouble"]


async def test_what_the_daemon_has_withdrawn_or_not_signed_is_not_begun(tmp_path: Path) -> None:
    withdrawn, forged = Site(tmp_path / "a"), Site(tmp_path / "b")
    assert orders.withdraw(withdrawn.spool, JOB, J0)
    file = forged.j0 / "alone" / "order.json"
    envelope = json.loads(file.read_text())
    file.write_text(json.dumps({**envelope, "order": envelope["order"].replace("one", "two")}))
    async with cluster(tmp_path) as batch:
        for site in (withdrawn, forged):
            id = await site.start(batch)
            eventually(site.is_alone)
            await asyncio.sleep(2.5)  # five times as long as it would take
            assert not site.exit_file.exists()
            await cancelled(batch, id)
            assert not site.output()
        assert "is not the manager's" in forged.said


async def test_one_worker_that_is_missing_keeps_the_others_from_it(tmp_path: Path) -> None:
    """Six processors are asked for, and the workers have four."""
    site = Site(tmp_path, processors=6)
    async with cluster(tmp_path) as batch:
        id = await site.start(batch)
        eventually(lambda: len(site.away()) == 2)
        both = site.away()
        # Each has looked again since both were there, and begins nothing.
        eventually(lambda: all(at_ns > both[name] for name, at_ns in site.away().items()))
        assert orders.withdraw(site.spool, JOB, J0)
        await cancelled(batch, id)
        assert not site.output()


def begins(site: Site, at_once: bool = True) -> int:
    """What J0's script runs before any worker; the code with which it ends."""
    start = WorkerScript(sys.executable, site.spool.install_worker(), site.j0, site.exit_file)
    words = [*alone_words(start), *(["--at-once", "yes"] if at_once else [])]
    return subprocess.run(words, env={"SLURM_JOB_ID": "5"}, timeout=180, check=False).returncode


def test_what_its_order_lets_begin_at_once_does_so_once(tmp_path: Path) -> None:
    site = Site(tmp_path, at_once=True)
    script = "#!/bin/bash\necho $SLURM_JOB_ID $GREETING; exit 79\n"
    site.spool.script_file(JOB).write_text(script)
    text = json.loads(json.loads((site.j0 / "alone" / "order.json").read_text())["order"])
    orders.give(site.spool, JOB, J0, SECRET, {**text, "digest": hashlib.sha256(script.encode()).hexdigest()}, None)
    assert begins(site) == BEGINS_ALONE and (site.j0 / "alone" / "begun").exists(), "79 is its own code here"
    assert (tmp_path / "job-5.out").read_text() == "5 hello\n"
    assert orders.begun_at_once(site.spool, JOB, J0) and not orders.withdraw(site.spool, JOB, J0)
    assert begins(site) == 1, "once only"


def test_a_mark_lets_it_begin_at_once_if_it_says_so_by_then(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    site = Site(tmp_path, at_once=False, at_once_if=str(mark))
    for _ in range(2):
        assert begins(site) == BEGINS_ALONE and not (site.j0 / "alone" / "begun").exists(), "it says nothing"
        assert orders.begun_s(site.spool, JOB, J0) is None
        mark.touch()
    mark.write_bytes(b"1")
    begins(site)
    assert (site.j0 / "alone" / "begun").exists() and orders.begun_at_once(site.spool, JOB, J0)
    mark.unlink()
    assert begins(site) == 1, "once only, whatever the mark says now"


def test_what_is_void_or_does_not_say_so_waits_for_workers(tmp_path: Path) -> None:
    void, plain, none = Site(tmp_path / "a", at_once=True), Site(tmp_path / "b"), Site(tmp_path / "c", at_once=True)
    assert orders.withdraw(void.spool, JOB, J0)
    (none.j0 / "alone" / "order.json").unlink()
    for site in (void, plain, none):
        assert begins(site) == BEGINS_ALONE and not (site.j0 / "alone" / "begun").exists()
        assert orders.begun_s(site.spool, JOB, J0) is None and not site.output()
