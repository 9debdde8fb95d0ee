"""The roster that is kept between polls is the one that would be read now, and is not read again for nothing.

That it is the same after whatever happens is seen over random histories by test_manager_roster.py, and in the soak.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text, update
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from ejbd.errors import EjbError
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.facts.listing.workingset import READ_ANEW_S, WorkingSet
from ejbd.store.models import Job
from ejbd.store.shifting import shift
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


class Reads:
    """How often the roster is read whole, and how many jobs are read by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.whole, self.single = 0, 0
        read, of = Roster.read, Roster.of

        def counted(session: Session) -> Roster:
            self.whole += 1
            return read(session)

        def counted_of(session: Session, ids: Any) -> Roster:
            self.single += len(ids)
            return of(session, ids)

        monkeypatch.setattr(Roster, "read", counted)
        monkeypatch.setattr(Roster, "of", counted_of)


async def same(live: LiveWorld, working: WorkingSet) -> None:
    kept, anew = await working.now(), await live.store.read(Roster.read)
    assert list(kept.jobs.items()) == list(anew.jobs.items()) and kept.subjobs == anew.subjobs


async def test_polls_read_those_that_have_changed_and_nobody_else(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.batch.free = 0
    jobs = [await live.submit() for _ in range(12)]
    await live.poll(5)
    await live.poll(5)
    await live.poll(5)
    reads = Reads(monkeypatch)
    await live.poll(5)
    assert (reads.whole, reads.single) == (0, 0), "nothing happened"
    await live.manager.hold(jobs[3], "ada")
    await live.poll(5)
    assert (reads.whole, reads.single) == (0, 1)
    await live.manager.cancel(jobs[5], "ada")
    await live.poll(5)
    assert reads.whole == 0 and reads.single <= 3
    assert jobs[5] not in (await live.manager.poller.open.now()).jobs


async def test_a_bulk_change_has_everything_read_anew(live: LiveWorld) -> None:
    working = WorkingSet(live.store)
    job = await live.submit()
    await same(live, working)
    await live.store.write(lambda s: shift(s, 1000.0))
    await same(live, working)
    await live.store.write(lambda s: s.execute(update(Job).values(decision_key="other")))
    await same(live, working)
    assert (await working.now()).jobs[job].decision_key == "other"


async def test_a_change_that_was_undone_is_not_there(live: LiveWorld) -> None:
    working = WorkingSet(live.store)
    job = await live.submit()
    await same(live, working)

    def fails(session: Session) -> None:
        session.query(Job).one().held = True
        session.flush()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await live.store.write(fails)
    await same(live, working)
    assert not (await working.now()).jobs[job].held


async def test_a_commit_of_which_nobody_knows_whether_it_was_made_has_everything_read_anew(live: LiveWorld) -> None:
    """The database has made it, and its answer was lost on the way."""
    working = WorkingSet(live.store)
    job = await live.submit()
    await same(live, working)
    engine = live.store._writer

    def lost(connection: Any) -> None:
        connection.connection.dbapi_connection.commit()
        raise RuntimeError("the connection was lost")

    def hold(session: Session) -> None:
        session.query(Job).one().held = True

    event.listen(engine, "commit", lost)
    try:
        with pytest.raises(EjbError):
            await live.store.write(hold)
    finally:
        event.remove(engine, "commit", lost)
    assert (await working.now()).jobs[job].held
    await same(live, working)


async def test_a_database_that_fails_costs_one_reading(live: LiveWorld) -> None:
    working = WorkingSet(live.store)
    await live.submit()
    await same(live, working)
    await live.submit()

    def refuse(*_: Any) -> None:
        raise RuntimeError("refused")

    event.listen(live.store._writer, "before_cursor_execute", refuse)
    try:
        with pytest.raises((EjbError, RuntimeError), match="refused"):
            await working.now()
    finally:
        event.remove(live.store._writer, "before_cursor_execute", refuse)
    await same(live, working)


async def test_it_is_read_anew_once_in_a_while(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    working = WorkingSet(live.store, lambda: now[0])
    await live.submit()
    await same(live, working)
    reads = Reads(monkeypatch)
    await working.now()
    assert reads.whole == 0
    now[0] += READ_ANEW_S + 1
    with capture_logs() as logged:
        await working.now()
    assert reads.whole == 1 and not logged


async def test_a_change_past_the_writer_is_told_when_it_is_read_anew(live: LiveWorld) -> None:
    """Nobody should do that; then it is known that somebody did, and what is kept is right again."""
    now = [0.0]
    working = WorkingSet(live.store, lambda: now[0])
    job, other = await live.submit(), await live.submit()
    await same(live, working)
    await live.store.write(lambda s: s.connection().execute(text("UPDATE jobs SET decision_key = 'x' WHERE seq = 1")))
    await live.manager.hold(other, "ada")
    now[0] += READ_ANEW_S + 1
    with capture_logs() as logged:
        await same(live, working)
    assert [(entry["event"], entry["jobs"]) for entry in logged] == [("working-set-differs", [job])]
