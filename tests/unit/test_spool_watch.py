"""A daemon knows its spool, begins nothing without it, and leaves the jobs of another daemon alone."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.errors import Code, EjbError
from ejbd.manager.hands import spool
from ejbd.manager.hands.files import OwnFiles
from ejbd.manager.service import signs, spool_watch
from ejbd.manager.service.signs import SIGN_NAME, STILL_S, Rivals, Sign
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

MINE = Sign.of_this_process("mine", 5)
FAR = Sign("theirs", 7, "vm2", "another machine", 4711, "12")


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to build, and none runs here."""
    monkeypatch.setattr(spool, "build_worker", lambda: b"")


@pytest.fixture
async def live(tmp_path: Path, store: Store) -> LiveWorld:
    live = LiveWorld(tmp_path, store)
    await live.manager.spool_watch.look(first=True)
    await live.poll()
    return live


def fault_of(live: LiveWorld) -> str:
    return next((fault.what for fault in live.manager.faults() if fault.code is Code.SPOOL), "")


class Unmounted:
    """The spool's file system is away, and the folder below its mount point is there."""

    def __init__(self, live: LiveWorld) -> None:
        self.root = live.manager.world.spool.root
        self._kept = self.root.with_name("kept")
        self.root.rename(self._kept)
        self.root.mkdir(mode=0o700)

    def mount(self) -> None:
        self.root.rmdir()  # nothing was made in it
        self._kept.rename(self.root)


class FaultyFiles(OwnFiles):
    """A file system that refuses each file, or does not answer before `gate` is set."""

    def __init__(self, code: int | None, gate: threading.Event) -> None:
        self._code = code
        self._gate = gate

    def put(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        if self._code is None:
            self._gate.wait(20)
            return
        raise EjbError(Code.SPOOL, f"cannot write: {os.strerror(self._code)}", transient=True)


async def test_nothing_is_begun_while_the_spool_is_away(live: LiveWorld) -> None:
    disk = Unmounted(live)
    early = await live.submit()  # before it was noticed: its files are refused, and none is made
    await live.manager.spool_watch.look()
    assert "mark is gone" in fault_of(live) and "mounted" in fault_of(live)
    late = await live.submit()
    await live.poll(100)
    assert live.batch.jobs == {} and not list(disk.root.iterdir())
    disk.mount()
    await live.manager.spool_watch.look()
    assert fault_of(live) == ""
    await live.poll(100)
    assert {job.tag for job in live.batch.jobs.values()} == {f"ejb-{early}.0", f"ejb-{late}.0"}


async def test_a_job_is_not_lost_while_word_of_its_end_may_be_in_the_spool(live: LiveWorld) -> None:
    job = await live.submit()
    disk = Unmounted(live)
    await live.manager.spool_watch.look()
    live.batch.jobs.clear()
    for _ in range(4):
        await live.poll(40)
    assert [subjob.state for subjob in live.subjobs(job)] == ["pending"] and live.batch.jobs == {}
    disk.mount()
    await live.manager.spool_watch.look()
    await live.poll(40)
    assert live.subjobs(job)[0].state == "lost"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, None])
async def test_a_spool_that_takes_no_file_is_told(
    live: LiveWorld, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(spool_watch, "PATIENCE_S", 0.1)
    bare = live.manager.world.bare_spool
    bare.files = FaultyFiles(code, gate)
    try:
        await live.manager.spool_watch.look()
        await live.manager.spool_watch.look()  # of what hangs no second trial is begun
        assert (os.strerror(code) if code else "does not answer") in fault_of(live)
        await live.submit()
        assert live.batch.jobs == {}
    finally:
        gate.set()
    bare.files = OwnFiles()
    trial = live.manager.spool_watch._trial
    if trial is not None and code is None:
        await trial
    await live.manager.spool_watch.look()
    await live.poll(10)
    assert fault_of(live) == "" and len(live.batch.jobs) == 1


async def test_a_daemon_that_starts_without_its_spool_begins_when_it_is_there(live: LiveWorld) -> None:
    disk = Unmounted(live)
    await live.restart()
    manager = live.manager
    await manager.start()
    try:
        manager.publish("http://127.0.0.1:1")
        with pytest.raises(EjbError, match="mark is gone") as refused:
            await live.submit()
        assert refused.value.code is Code.SPOOL and refused.value.transient
        assert not list(disk.root.iterdir()) and "executor" not in manager._tasks
        disk.mount()
        await manager._try_spool()
        assert "executor" in manager._tasks and fault_of(live) == ""
        manager.world.hands.tell()
        assert (disk.root / "manager.json").exists()
    finally:
        await manager.stop()
    last = Sign.parse((disk.root / SIGN_NAME).read_bytes())
    assert last is not None and last.has_ended


async def test_a_daemon_on_a_copy_stands_still_while_the_other_one_lives(live: LiveWorld) -> None:
    live.manager.world.bare_spool.files.put(live.manager.world.spool.root / SIGN_NAME, FAR.to_bytes())
    await live.restart()
    manager, now = live.manager, [0.0]
    manager.spool_watch._rivals._monotonic = lambda: now[0]
    await manager.start()
    try:
        assert "process 4711 on vm2" in fault_of(live) and "ejb admin adopt" in fault_of(live)
        with pytest.raises(EjbError, match="another daemon has the spool"):
            await live.submit()
        now[0] += STILL_S
        await manager._try_spool()
        assert "executor" in manager._tasks and fault_of(live) == ""
    finally:
        await manager.stop()


async def test_a_daemon_that_came_second_ends_when_the_first_one_shows(live: LiveWorld) -> None:
    watch, path = live.manager.spool_watch, live.manager.world.spool.root / SIGN_NAME
    ended: list[bool] = []
    live.manager.on_rival = lambda: ended.append(True)
    path.write_bytes(replace(FAR, run="a newcomer").to_bytes())
    await watch.look()
    assert not ended and fault_of(live) == ""
    watch._rivals._followed = FAR.run
    for number in (7, 8):
        assert not ended
        path.write_bytes(replace(FAR, number=number).to_bytes())
        await watch.look()
    assert ended and "the daemon before this one lives" in watch.rival


def test_which_sign_another_daemon_lives_by() -> None:
    now = [0.0]

    def rivals(is_led: bool = False) -> Rivals:
        return Rivals(is_led, lambda: now[0])

    gone = replace(MINE, run="before", started="1")
    assert [rivals().find(sign, 0) for sign in (None, MINE, gone)] == ["", "", ""]
    assert rivals(is_led=True).find(FAR, 7) == ""  # a standby's leader, which the database keeps from writing
    assert "later copy" in rivals(is_led=True).find(FAR, 6)
    here = replace(MINE, run="the original", pid=os.getppid(), started=signs._started(os.getppid()))
    living = rivals()
    for _ in range(3):  # its process is there, however long its sign stays as it is
        assert "later copy" in living.find(here, 4)
        now[0] += STILL_S
    waiting = rivals()
    assert "may have the spool" in waiting.find(FAR, 7)
    now[0] += STILL_S - 1
    assert waiting.find(replace(FAR, number=8), 7) != ""  # it lives
    now[0] += STILL_S - 1
    assert waiting.find(replace(FAR, number=8), 7) != ""
    now[0] += 1
    assert waiting.find(replace(FAR, number=8), 7) == ""
    assert Sign.parse(FAR.to_bytes()) == FAR and Sign.parse(b"{") is None
