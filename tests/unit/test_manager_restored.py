"""A database is restored from an older copy: what the spool and the batch system know is adopted, and nothing runs
twice."""

from __future__ import annotations

import math
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.manager.acts.records import SKIPPED_NUMBERS, skip_numbers
from ejbd.manager.hands import spool
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.rules.linked import elements
from ejbd.manager.service.ends import drop_ends, read_ends
from ejbd.store.another_site import LEFT, make_another_site
from ejbd.store.backup import backup
from ejbd.store.engine import parse_url
from ejbd.store.models import Event, Operation
from ejbd.store.store import Store
from tests.fakes.batch import MemoryBatch
from tests.fakes.live import LiveWorld


class Restored(LiveWorld):
    """The world goes on, and the daemon's database is as it was."""

    def __init__(self, before: LiveWorld, store: Store) -> None:
        self._batch_before = before.batch
        super().__init__(before.folder, store)
        self.clock = before.clock
        self.workers = before.workers

    def _new_batch(self) -> MemoryBatch:
        return self._batch_before


class Site:
    """A world with a database that can be copied, and put back."""

    def __init__(self, folder: Path, tables: Path) -> None:
        self._folder = folder
        self._url = f"sqlite:///{folder / 'ejbd.sqlite'}"
        shutil.copy(tables, folder / "ejbd.sqlite")
        self.store = Store(self._url)
        self.live = LiveWorld(folder, self.store)

    def copy(self) -> None:
        backup(parse_url(self._url), self._folder / "copy")

    async def restore(self) -> LiveWorld:
        """A daemon on the copy, after one that has ended."""
        await self.live.manager.spool_watch.look()
        self.store.close()
        shutil.copy(self._folder / "copy", self._folder / "old.sqlite")
        self.store = Store(f"sqlite:///{self._folder / 'old.sqlite'}")
        self.live = Restored(self.live, self.store)
        manager = self.live.manager
        await manager.spool_watch.look(first=True)
        assert manager.spool_watch.later is not None
        await manager._adopt_known(manager.spool_watch.later)
        assert manager.spool_watch.later is None and manager.world.closed is None
        await self.store.write(manager.recover)
        await self.live.poll(10)
        return self.live


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to build, and none runs here."""
    monkeypatch.setattr(spool, "build_worker", lambda: b"")


@pytest.fixture
async def site(tmp_path: Path, sqlite_with_tables: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path, sqlite_with_tables)
    await site.live.manager.spool_watch.look(first=True)
    await site.live.manager.end_notes.note()
    await site.live.poll()
    yield site
    site.store.close()


def tags(live: LiveWorld) -> list[str]:
    return sorted(job.tag for job in live.batch.jobs.values() if not job.state.ended)


async def test_jobs_that_the_copy_does_not_know_are_found(site: Site) -> None:
    site.copy()
    site.live.batch.free = 0
    reading = site.live.reading()
    waits = (await site.live.manager.submit(reading, "ada", "a key", "body")).id
    await site.live.act()
    rigid = await site.live.submit(elastic=False)
    site.live.batch.start(f"ejb-{rigid}.0")
    before = tags(site.live)
    live = await site.restore()
    assert tags(live) == before and len(before) == 2
    assert live.job(waits).state == "waiting" and live.job(rigid).state == "running"
    assert live.kinds(waits)[:2] == ["job.received", "job.adopted"]
    again = await live.manager.submit(reading, "ada", "a key", "body")
    assert (again.id, again.created) == (waits, False)
    await live.poll(10)
    assert tags(live) == before
    worker = await live.begin(f"{waits}.0")  # by the secret that its file has
    await worker.finish_ranks(1)
    await live.poll(10)
    await live.work()
    await live.poll(10)
    assert live.job(waits).state == "completed"


async def test_what_has_ended_meanwhile_is_not_run_again(site: Site) -> None:
    known, received = await site.live.submit(), await received_job(site.live)
    site.copy()
    await site.live.act()
    lost, told = await site.live.submit(), await site.live.submit(elastic=False)
    assert len(tags(site.live)) == 4
    site.live.batch.jobs.clear()  # long ago
    site.live.spool_of(told).exit_file(told, f"{told}.0").write_text("3\n")
    live = await site.restore()
    await live.poll(100)
    assert tags(live) == []
    assert [live.job(job).state for job in (known, received, lost)] == ["unknown"] * 3
    assert (live.job(told).state, live.job(told).exit_code) == ("failed", 3)
    await live.manager.cancel(lost, "ada")
    await live.poll(10)
    assert live.job(lost).state == "cancelled"


@pytest.mark.parametrize("known", [True, False], ids=["the copy knows the job", "it does not"])
async def test_how_a_job_has_ended_meanwhile_is_learnt_from_the_spool(site: Site, known: bool) -> None:
    if not known:
        site.copy()
    jobs = [await site.live.submit() for _ in range(3)]
    workers = [await site.live.begin(f"{job}.0") for job in jobs]
    if known:
        site.copy()
    for worker, code in zip(workers[:2], (0, 3), strict=True):
        await worker.finish_ranks(1, code=code)
    await site.live.manager.cancel(jobs[2], "ada")
    for _ in range(3):
        await site.live.poll(10)
        await site.live.work()
    before = [(job.state, job.exit_code, job.start_s, job.end_s, job.reason) for job in map(site.live.job, jobs)]
    assert [one[0] for one in before] == ["completed", "failed", "cancelled"]
    await site.live.manager.end_notes.note()
    live = await site.restore()
    assert [(job.state, job.exit_code, job.start_s, job.end_s, job.reason) for job in map(live.job, jobs)] == before
    await live.poll(100)
    assert tags(live) == [] and not any(epoch.state == "running" for job in jobs for epoch in live.epochs(job))
    live.manager.world.spool.root.joinpath("ended", "00000001.json").write_text("{")
    assert read_ends(live.manager.world.spool) == {}
    drop_ends(live.manager.world.spool, math.inf)
    assert not list(live.manager.world.spool.root.joinpath("ended").iterdir())


async def test_a_submission_that_the_copy_has_not_made_is_not_made_twice(site: Site) -> None:
    job = await received_job(site.live)
    site.copy()
    await site.live.act()
    before = tags(site.live)
    assert before == [f"ejb-{job}.0"]
    live = await site.restore()
    await live.poll(100)
    assert tags(live) == before and live.subjobs(job)[0].state == "pending"
    await live.begin(f"{job}.0")
    operation = live.store.read_sync(lambda s: s.scalars(select(Operation)).first())
    assert operation is not None and operation.seq > SKIPPED_NUMBERS  # its worker knows the numbers before


async def test_a_subjob_that_the_copy_does_not_know_is_given_back(site: Site) -> None:
    site.live.batch.free = 0
    job = await site.live.submit()
    site.copy()
    site.live.batch.free = 8
    await site.live.poll(10)
    assert tags(site.live) == [f"ejb-{job}.0", f"ejb-{job}.1"]
    site.live.batch.free = 0
    live = await site.restore()
    assert tags(live) == [f"ejb-{job}.0"] and [s.ordinal for s in live.subjobs(job)] == [0, 1]


async def submit_array(live: LiveWorld, array: str, key: str) -> str:
    overrides = Overrides(ntasks="2", time="10", engine="application", options=(f"--array={array}",))
    reading = read(JobRequest(cwd=str(live.folder), command=("./heat",), overrides=overrides))
    return (await live.manager.submit(reading, "ada", key, "body")).id


def indices(live: LiveWorld, array: str) -> dict[str, str]:
    return live.store.read_sync(lambda s: elements.indices(s, array))


async def settle(live: LiveWorld) -> None:
    for _ in range(6):
        await live.act()


@pytest.mark.parametrize("known", [True, False], ids=["the copy knows the array", "it does not"])
async def test_an_array_goes_on_with_the_elements_that_have_not_begun(site: Site, known: bool) -> None:
    site.live.batch.free = 0
    if not known:
        site.copy()
    array = await submit_array(site.live, "0-3%2", "a key")
    await site.live.manager.cancel_elements(array, "3", "ada")
    if known:
        site.copy()
    await settle(site.live)
    before = tags(site.live)
    assert before == [f"ejb-{array}_0.0", f"ejb-{array}_1.0"]
    live = await site.restore()
    await settle(live)
    assert tags(live) == before
    assert await submit_array(live, "0-3%2", "a key") == array
    assert indices(live, array) == {"waiting": "0-1", "to come": "2", "cancelled": "3"}
    for index in (0, 1, 2):
        worker = await live.begin(f"{array}_{index}.0")
        await worker.finish_ranks(next(iter(worker.ranks)))
        for _ in range(2):
            await live.poll(5)
            await live.work()
        await settle(live)
    assert indices(live, array) == {"completed": "0-2", "cancelled": "3"}
    assert sorted(job.tag for job in live.batch.jobs.values()) == [f"ejb-{array}_{index}.0" for index in (0, 1, 2)]


async def received_job(live: LiveWorld) -> str:
    """A job of which nothing was asked of the batch system yet."""
    return (await live.manager.submit(live.reading(), "ada", None, "hash")).id


async def test_a_copy_that_becomes_another_sites_leaves_the_jobs_alone(site: Site) -> None:
    job = await site.live.submit()
    await site.live.begin(f"{job}.0")
    before = tags(site.live)
    site.store.close()
    url = f"sqlite:///{site.live.folder / 'ejbd.sqlite'}"
    assert make_another_site(url, leave_jobs=True) == 1
    site.store = Store(url)
    live = site.live = Restored(site.live, site.store)
    await live.poll(100)
    await live.act()
    assert (live.job(job).state, live.job(job).reason) == ("cancelled", LEFT)
    assert tags(live) == before and all(e.state == "failed" for e in live.epochs(job))


@pytest.mark.sql
def test_numbers_that_were_told_are_not_given_again(store: Store) -> None:
    def event(session: Session) -> int:
        session.add(found := Event(at_s=0.0, kind="daemon.started", data={}))
        session.flush()
        return found.id

    first = store.write_sync(event)
    store.write_sync(skip_numbers)
    assert store.write_sync(event) > first + SKIPPED_NUMBERS
