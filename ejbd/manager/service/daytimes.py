"""What is done once a day at a time of day: old rows go, the database is copied, accounting is read.

APScheduler wakes it, at no misfire too late. What counts is our own table: up to which moment each was done. So a
daemon that was away for a week makes up for it once, and an hour that the clock has twice has it once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy.orm import Session

from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.store import backup
from ejbd.store.models import DailyRun
from ejbd.store.store import Store

log = structlog.get_logger(__name__)

SLACK_S = 5.0  # the scheduler's clock may be ahead of the daemon's by so much
IMPORT_S = 3600.0
SETTLE_S = 30.0  # from the daemon's start until what was missed is done: by then it answers to an import
AGAIN_S = 600.0  # between two looks for what failed
_COPY = "ejbd-"

Task = Callable[[], Awaitable[None]]


def latest_due(at: str, zone: ZoneInfo, now_s: float) -> float:
    """The last moment (epoch seconds) up to `now_s` at which it was `at` (`HH:MM`) in `zone`.

    Of an hour that comes twice it is the first; one that the clock leaves out is an hour later.
    """
    hour, minute = map(int, at.split(":"))
    day = datetime.fromtimestamp(now_s, zone).date() + timedelta(days=1)
    while True:
        due_s = datetime.combine(day, time(hour, minute), zone).timestamp()
        if due_s <= now_s:
            return due_s
        day -= timedelta(days=1)


class DayTimes:
    """The tasks of a day. `prune` is the manager's; the others are here."""

    def __init__(
        self, settings: Settings, store: Store, clock: Callable[[], float], prune: Task, settle_s: float = SETTLE_S
    ) -> None:
        self._settings, self._store, self._clock, self._settle_s = settings, store, clock, settle_s
        daily = settings.daily
        tasks: dict[str, tuple[str, Task]] = {
            "prune": (daily.prune_at, prune),
            "backup": (daily.backup_at, self._back_up),
            "import": (daily.import_at, self._import),
        }
        self.tasks: Mapping[str, tuple[str, Task]] = {name: task for name, task in tasks.items() if task[0]}
        self._turns = asyncio.Lock()
        self._scheduler: Any = AsyncIOScheduler(
            timezone=settings.zone, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )

    async def run(self) -> None:
        """Do what was missed, then each task at its time and what failed once more, until this is cancelled."""
        for name, (at, _) in self.tasks.items():
            hour, minute = at.split(":")
            trigger = CronTrigger(hour=hour, minute=minute, timezone=self._settings.zone)
            self._scheduler.add_job(self.look, trigger, args=[name], id=name)
        self._scheduler.start()
        try:
            await asyncio.sleep(self._settle_s)
            while True:
                for name in self.tasks:
                    await self.look(name)
                await asyncio.sleep(AGAIN_S)
        finally:
            self._scheduler.shutdown(wait=False)

    async def look(self, name: str) -> bool:
        """Do a task that is due and was not done since; whether it was done. What fails is told, and is due again."""
        at, task = self.tasks[name]
        async with self._turns:
            due_s = latest_due(at, self._settings.zone, self._clock() + SLACK_S)
            try:
                if not await self._store.write(lambda s: _is_due(s, name, due_s)):
                    return False
                await task()
                await self._store.write(lambda s: _done(s, name, due_s, self._clock()))
            except Exception as error:
                said = error.sentence() if isinstance(error, EjbError) else repr(error)
                log.error("daily-failed", what=name, at=at, error=said)
                return False
        log.info("daily-done", what=name, due_s=due_s)
        return True

    async def _back_up(self) -> None:
        folder = self._settings.daily.backup_dir or self._settings.state_dir / "backups"
        stamp = datetime.fromtimestamp(self._clock(), self._settings.zone).strftime("%Y-%m-%dT%H%M%S")
        await asyncio.to_thread(self._copy, folder, folder / f"{_COPY}{stamp}")

    def _copy(self, folder: Path, target: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            backup.backup(self._store.url, target)
            copies = sorted(path for path in folder.glob(f"{_COPY}????-??-??T??????") if path.is_file())
            for old in copies[: -self._settings.daily.backups_kept]:
                old.unlink()
        except OSError as error:
            raise EjbError(Code.STORE, f"the copies cannot be kept: {error.strerror}", where=str(folder)) from None

    async def _import(self) -> None:
        """As an administrator by the socket: a program of its own reads a million rows without keeping a poll."""
        words = [
            "--socket",
            str(self._settings.socket_path),
            "history",
            "import",
            str(self._settings.daily.import_file),
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ejbd.cli.main", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(IMPORT_S):
                _, said = await process.communicate()
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
        if process.returncode:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise EjbError(Code.INVALID, last[0] if last else f"it ended with {process.returncode}")


def _is_due(session: Session, name: str, due_s: float) -> bool:
    """Whether nothing was done since that moment. The first time of all is counted from: nothing was missed then."""
    found = session.get(DailyRun, name)
    if found is None:
        session.add(DailyRun(name=name, due_s=due_s, ended_s=None))
        return False
    return found.due_s < due_s


def _done(session: Session, name: str, due_s: float, now_s: float) -> None:
    found = session.get_one(DailyRun, name)
    found.due_s, found.ended_s = due_s, now_s
