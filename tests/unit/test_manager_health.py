"""What `/v1/health` and systemd's watchdog know of a daemon that does not do its work."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ejbd.errors import Code
from ejbd.manager.service import health
from ejbd.manager.service.health import Fault
from ejbd.manager.service.watchdog import feed, notify
from ejbd.store.store import Store
from tests.acceptance.sites import small_file_system
from tests.fakes.daemon import ROOT
from tests.fakes.live import LiveWorld

WAIT_S = 20.0


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def watched(live: LiveWorld) -> list[float]:
    """Have the manager's health go by a clock that the test sets: its one value."""
    now = [1000.0]
    live.manager.watch._monotonic = lambda: now[0]
    live.manager.watch.looked()
    return now


async def until_told(live: LiveWorld, words: str) -> Fault:
    """Wait until a fault is told in these words."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for fault in live.manager.faults():
            if words in fault.what:
                return fault
        await asyncio.sleep(0.02)
    raise AssertionError(f"not told: {words}; but {live.manager.faults()}")


async def test_all_is_well(live: LiveWorld) -> None:
    assert "has not answered yet" in live.manager.faults()[0].what
    await live.poll()
    await live.manager.watch.try_database()
    assert live.manager.health()["ok"] and live.manager.faults() == []


async def test_polls_that_hang_are_told_by_the_monotonic_clock(live: LiveWorld) -> None:
    now = watched(live)
    await live.poll()
    live.clock.now -= 7200  # somebody sets the clock: nothing of health's business
    now[0] += live.manager.watch.poll_limit_s - 1
    assert live.manager.health()["ok"]
    live.clock.now += 9200
    now[0] += 2
    (fault,) = live.manager.faults()
    assert fault.stuck and "the last look at the batch system was" in fault.what
    await live.poll()
    assert live.manager.health()["ok"]


async def test_a_batch_system_that_is_silent_is_told_and_not_taken_for_a_stuck_daemon(live: LiveWorld) -> None:
    now = watched(live)
    live.batch.silent = True
    for _ in range(10):
        now[0] += 60
        await live.poll()
    (fault,) = live.manager.faults()
    assert fault.code is Code.BATCH_UNAVAILABLE and not fault.stuck


async def test_a_writer_that_does_not_come_back_is_told(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.poll()
    monkeypatch.setattr(health, "WRITER_S", 0.05)
    gate = threading.Event()
    stuck = asyncio.create_task(live.store.write(lambda s: gate.wait(WAIT_S)))
    try:
        fault = await until_told(live, "the database has been at one commit for")
        assert fault.stuck and fault.code is Code.STORE
    finally:
        gate.set()
        await stuck
    await until_(lambda: live.manager.health()["ok"])


async def test_an_action_that_does_not_end_is_told(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    now = watched(live)
    await live.poll()
    gate = asyncio.Event()

    async def hangs() -> None:
        await gate.wait()

    live.manager.acting.executor = live.executor
    monkeypatch.setattr(live.executor, "run_due", hangs)
    acting = asyncio.create_task(live.manager.acting.run())
    try:
        await until_(lambda: live.manager.watch._passing is not None)
        assert live.manager.health()["ok"]
        now[0] += live.manager.watch.pass_limit_s + 1
        live.manager.watch.looked()
        (fault,) = live.manager.faults()
        assert fault.stuck and "was asked to do has been under way" in fault.what
    finally:
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)


async def until_(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_full_disk_is_told_before_a_user_meets_it_and_room_is_seen(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", "4m") as disk:
        store = Store(f"sqlite:///{disk / 'ejbd.sqlite'}")
        try:
            store.upgrade()
            live = LiveWorld(tmp_path, store)
            await live.poll()
            assert live.manager.health()["ok"]
            with contextlib.suppress(OSError), (disk / "ballast").open("ab", buffering=0) as file:
                while True:
                    file.write(b"\0" * 4096)
            for _ in range(400):  # the log that SQLite writes to has room for some
                await live.manager.watch.try_database()
                if not live.manager.health()["ok"]:
                    break
            await live.poll()
            (fault,) = live.manager.faults()
            assert "full" in fault.what and fault.code is Code.STORE and not fault.stuck
            (disk / "ballast").unlink()
            await live.manager.watch.try_database()
            assert live.manager.health()["ok"]
        finally:
            store.close()


async def test_the_watchdog_is_fed_while_the_daemon_is_not_stuck(tmp_path: Path) -> None:
    """A real datagram socket in systemd's place."""
    found: list[Fault] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000"}
        loop = asyncio.get_running_loop()

        async def heard(words: str, *, without: str = "\0") -> None:
            async with asyncio.timeout(WAIT_S):
                while True:
                    said = (await loop.sock_recv(systemd, 4096)).decode()
                    if words in said and without not in said:
                        return

        task = asyncio.create_task(feed(lambda: found, environment))
        try:
            await heard("READY=1")
            await heard("WATCHDOG=1")
            found.append(Fault(Code.STORE, "the disk is full", ""))
            await heard("STATUS=the disk is full\nWATCHDOG=1")
            found.append(Fault(Code.INTERNAL, "nothing moves", "", stuck=True))
            await heard("nothing moves", without="WATCHDOG")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert not notify("READY=1", environment={}) and not notify("READY=1", environment=environment)
    await asyncio.wait_for(feed(lambda: [], {}), WAIT_S)  # without systemd there is nothing to do


def test_the_unit_file_waits_for_the_daemon_and_watches_it() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((ROOT / "deploy" / "systemd" / "ejbd.service").read_text())
    service = unit["Service"]
    assert service["Type"] == "notify" and service["Restart"] == "on-failure" and service["KillMode"] == "process"
    assert int(service["WatchdogSec"]) > 3 * 10, "it is fed every 10 s at the latest"
