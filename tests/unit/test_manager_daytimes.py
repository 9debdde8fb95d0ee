"""What is done at a time of day: on the test's clock, over summer time, and after a daemon was away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from ejbd.config import DailySettings, Settings
from ejbd.errors import Code, EjbError
from ejbd.manager.service.daytimes import DayTimes, latest_due
from ejbd.store.models import DailyRun
from ejbd.store.store import Store
from tests.fakes.port import new_store

BERLIN = ZoneInfo("Europe/Berlin")
LONG_S = 30.0


def seconds(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


class Clock:
    def __init__(self, text: str) -> None:
        self.now = seconds(text)

    def __call__(self) -> float:
        return self.now

    def set(self, text: str) -> None:
        self.now = seconds(text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = new_store(tmp_path / "ejbd.sqlite")
    yield store
    store.close()


class Site:
    """A daemon's tasks, begun anew as often as a test wants; `pruned`: when it was."""

    def __init__(self, folder: Path, store: Store, **daily: Any) -> None:
        self.settings = Settings(state_dir=folder, time_zone="Europe/Berlin", daily=DailySettings(**daily))
        self.store, self.clock = store, Clock("2026-06-01T12:00")
        self.pruned: list[str] = []
        self.fault: Exception | None = None
        self.times = self.begin()

    def begin(self) -> DayTimes:
        self.times = DayTimes(self.settings, self.store, self.clock, self._prune, settle_s=0.0)
        return self.times

    async def _prune(self) -> None:
        if self.fault is not None:
            raise self.fault
        self.pruned.append(datetime.fromtimestamp(self.clock.now, BERLIN).isoformat(timespec="minutes")[:16])

    async def look_at(self, *texts: str) -> list[str]:
        for text in texts:
            self.clock.set(text)
            await self.times.look("prune")
        return self.pruned


@pytest.fixture
def site(tmp_path: Path, store: Store) -> Site:
    return Site(tmp_path, store)


async def test_once_a_day_and_what_was_never_due_before_waits_for_its_time(site: Site) -> None:
    assert await site.look_at("2026-06-01T12:00", "2026-06-02T03:29") == []
    assert await site.look_at("2026-06-02T03:30", "2026-06-02T03:30", "2026-06-02T23:00") == ["2026-06-02T03:30"]
    assert len(await site.look_at("2026-06-03T03:30")) == 2
    row = site.store.read_sync(lambda s: s.get_one(DailyRun, "prune"))
    assert (row.due_s, row.ended_s) == (seconds("2026-06-03T03:30"), site.clock.now)


async def test_a_daemon_that_was_away_for_days_catches_up_once(site: Site) -> None:
    await site.look_at("2026-06-01T12:00")
    site.begin()
    assert await site.look_at("2026-06-08T09:00", "2026-06-08T09:01") == ["2026-06-08T09:00"]
    site.begin()
    assert len(await site.look_at("2026-06-08T20:00", "2026-06-09T03:30")) == 2


async def test_what_fails_is_due_again(site: Site) -> None:
    await site.look_at("2026-06-01T12:00")
    site.fault = EjbError(Code.STORE, "no room")
    assert await site.look_at("2026-06-02T03:30") == []
    site.fault = None
    assert await site.look_at("2026-06-02T03:31") == ["2026-06-02T03:31"]


@pytest.mark.parametrize(
    ("at", "now", "due"),
    [
        ("02:30", seconds("2026-03-29T03:29"), seconds("2026-03-28T02:30")),  # 02:30 is not there that night
        ("02:30", seconds("2026-03-29T03:30"), seconds("2026-03-29T03:30")),
        ("02:30", seconds("2026-10-25T02:30", fold=0), seconds("2026-10-25T02:30", fold=0)),
        ("02:30", seconds("2026-10-25T02:30", fold=1), seconds("2026-10-25T02:30", fold=0)),  # the same one
        ("23:59", seconds("2026-01-01T00:00"), seconds("2025-12-31T23:59")),
        ("00:00", seconds("2026-01-01T00:00"), seconds("2026-01-01T00:00")),
    ],
)
def test_moments_in_nights_in_which_the_clock_is_changed(at: str, now: float, due: float) -> None:
    assert latest_due(at, BERLIN, now) == due


async def test_the_scheduler_wakes_it_however_late_and_coalesced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler's own clock is the test's: it stands at noon, and then three days later."""

    class Now(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Now:
            return cls.fromtimestamp(site.clock.now, tz)

    monkeypatch.setattr("apscheduler.schedulers.base.datetime", Now)
    monkeypatch.setattr("apscheduler.executors.base.datetime", Now)
    running = asyncio.create_task(site.times.run())
    try:
        await until(lambda: site.store.read_sync(lambda s: s.get(DailyRun, "prune")) is not None)
        site.clock.set("2026-06-04T09:00")
        site.times._scheduler.wakeup()
        await until(lambda: bool(site.pruned))
        site.times._scheduler.wakeup()
        await asyncio.sleep(0.1)
    finally:
        running.cancel()
    assert site.pruned == ["2026-06-04T09:00"]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not true():  # noqa: ASYNC110  # a row of the database sets no event
            await asyncio.sleep(0.01)


async def test_copies_of_the_database_are_made_and_the_oldest_go(tmp_path: Path, store: Store) -> None:
    site = Site(tmp_path, store, backup_at="02:00", backups_kept=2, backup_dir=tmp_path / "copies")
    await site.times.look("backup")
    other = tmp_path / "copies" / "ejbd-mine"
    for day in (2, 3, 4):
        site.clock.set(f"2026-06-0{day}T02:00")
        assert await site.times.look("backup")
        other.touch()
    names = sorted(path.name for path in (tmp_path / "copies").iterdir())
    assert names == ["ejbd-2026-06-03T020000", "ejbd-2026-06-04T020000", "ejbd-mine"]


async def test_an_import_is_ejb_history_import(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, store, import_at="05:00", import_file=tmp_path / "jobcomp.log")
    asked: list[tuple[Any, ...]] = []
    code = 0

    async def execute(*words: Any, **_: Any) -> Any:
        async def communicate() -> tuple[bytes, bytes]:
            return b"", b"ejb: no daemon answers [unreachable]\n"

        asked.append(words[1:])
        return SimpleNamespace(returncode=code, communicate=communicate)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", execute)
    await site.times.look("import")
    site.clock.set("2026-06-02T05:00")
    code = 9
    assert not await site.times.look("import")
    code = 0
    assert await site.times.look("import")
    socket = str(site.settings.socket_path)
    assert (
        asked == [("-m", "ejbd.cli.main", "--socket", socket, "history", "import", str(tmp_path / "jobcomp.log"))] * 2
    )


def test_what_is_off_is_no_task(site: Site) -> None:
    assert set(site.times.tasks) == {"prune"}


@pytest.mark.parametrize(
    "settings",
    [{"prune_at": ""}, {"backup_at": "24:00"}, {"backup_at": "2:00"}, {"import_at": "05:00"}, {"backups_kept": 0}],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DailySettings(**settings)
