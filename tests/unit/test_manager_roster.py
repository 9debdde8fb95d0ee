"""A poll loads only whom it may change: whoever it leaves alone on the roster's word, a look at the whole would too."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select

from ejbd.core.view import BatchState
from ejbd.errors import EjbError
from ejbd.manager.acts.carrying import run as rule
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.poll.reconciling import Reconciler
from ejbd.manager.poll.round import Round
from ejbd.manager.poll.tick import Tick
from ejbd.manager.rules.requests import requests
from ejbd.store.marks import OTHERS
from ejbd.store.models import Base, Job
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.slow

Rows = dict[str, list[tuple[Any, ...]]]


def everything(store: Store) -> Rows:
    """Every row of every table, without the numbers by which events and intents are told apart.

    Notes of batch jobs that are not EJB's are written after a poll, and by no roster.
    """

    def look(session: Any) -> Rows:
        found: Rows = {}
        for table in Base.metadata.sorted_tables:
            if table.name.startswith("other_"):
                continue
            columns = [c for c in table.columns if not (c.primary_key and table.name in ("events", "intents"))]
            rows = (tuple(row) for row in session.execute(select(*columns)))
            found[table.name] = sorted((row for row in rows if table.name != "marks" or OTHERS not in row), key=repr)
        return found

    return store.read_sync(look)


@contextlib.contextmanager
def everybody_loaded() -> Iterator[None]:
    """No job is left alone, and none is asked about without its rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reconciler, "_as_before", lambda *_: False)
        patch.setattr(Reconciler, "_goes_on", lambda *_: False)
        patch.setattr(Round, "_rests", lambda *_: None)
        patch.setattr(Round, "_may_be_asked", lambda *_: False)
        patch.setattr(Round, "_goes_on_running", lambda *_: False)
        yield


def look_at_everybody(live: LiveWorld, copy: Path) -> Rows:
    """What a poll would make of this moment if it loaded every job."""
    with contextlib.closing(sqlite3.connect(live.folder / "ejb.sqlite")) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    target.close()
    store = Store(f"sqlite:///{copy}")
    try:
        view = asyncio.run(live.batch.observe())
        tick = Tick(view, store.read_sync(Roster.read), {}, {}, live.manager.poller.specs)

        def context(session: Any) -> Context:
            ctx = live.manager.world.context(session)
            return replace(ctx, view=view, memory=ctx.memory.snapshot())

        with everybody_loaded():
            while store.write_sync(lambda s: tick.step(context(s))):
                pass
        return everything(store)
    finally:
        store.close()


def at_random(live: LiveWorld, dice: random.Random) -> None:
    """Something that users, the batch system or time do."""
    run: Callable[[Any], Any] = asyncio.run
    ids = list(live.store.read_sync(lambda s: s.scalars(select(Job.id).order_by(Job.seq))))
    waiting = [j for j in live.batch.live() if j.state in (BatchState.PENDING, BatchState.HELD)]
    running = [j for j in live.batch.live() if j.state is BatchState.RUNNING]
    match dice.randrange(9):
        case 0 | 1:
            engine = dice.choice(("application", "none"))
            spec: dict[str, Any] = {
                "elastic": dice.choice((None, None, False)),
                "engine": engine,
                "hold": dice.random() < 0.1,
            }
            run(live.submit(dice.choice((2, 8, 16)), dice.choice((60.0, 100.0, 3600.0)), **spec))
        case 2 if waiting:
            subjob = dice.choice(waiting).name.removeprefix("ejb-")
            if live.job(subjob.partition(".")[0]).elastic:
                run(live.begin(subjob))
            else:
                live.batch.start(f"ejb-{subjob}")
        case 3 if running:
            live.batch.end(dice.choice(running).name, dice.choice((BatchState.COMPLETED, BatchState.FAILED)), 0)
        case 4 if live.batch.live():
            live.batch.forget(dice.choice(live.batch.live()).name)
        case 5 if waiting:
            job = dice.choice(waiting)
            plan = dice.choice((None, live.clock() + dice.randint(1, 500)))
            live.batch.jobs[job.id] = replace(job, planned_start_s=plan, reason=dice.choice(("Priority", "Resources")))
        case 6 if ids:
            what = dice.choice((requests.cancel, requests.hold, requests.unhold))
            with contextlib.suppress(EjbError):
                live.store.write_sync(lambda s: rule(live.manager.world.context(s), what, dice.choice(ids), "ada"))
            run(live.act())
        case 7:
            live.batch.free = dice.choice((0, 0, 2, 4, 16))
        case _:
            live.clock.now += dice.choice((1, 5, 31))


def fail_in(live: LiveWorld, dice: random.Random) -> None:
    """A poll in which the database refuses one of its statements; what it had stored before is stored."""
    left = dice.randrange(60)

    def refuse(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise RuntimeError("refused")

    engine = live.store._writer
    event.listen(engine, "before_cursor_execute", refuse)
    try:
        with contextlib.suppress(RuntimeError):
            asyncio.run(live.manager.poller.poll())
    finally:
        event.remove(engine, "before_cursor_execute", refuse)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(5))
def test_a_poll_leaves_nobody_alone_whom_it_should_have_looked_at(sqlite_with_tables: Path, seed: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copyfile(sqlite_with_tables, folder / "ejb.sqlite")
        store = Store(f"sqlite:///{folder / 'ejb.sqlite'}")
        try:
            live = LiveWorld(folder, store)
            asyncio.run(live.poll())
            for turn in range(8):
                for _ in range(dice.randrange(6)):
                    at_random(live, dice)
                live.clock.now += 5
                if dice.random() < 0.3:
                    fail_in(live, dice)
                kept, anew = asyncio.run(live.manager.poller.open.now()), store.read_sync(Roster.read)
                assert (kept.jobs, kept.subjobs) == (anew.jobs, anew.subjobs), f"seed {seed}, turn {turn}"
                assert list(kept.jobs) == list(anew.jobs)
                expected = look_at_everybody(live, folder / f"copy{turn}.sqlite")
                asyncio.run(live.manager.poller.poll())
                found = everything(store)
                for table, rows in expected.items():
                    assert found[table] == rows, f"{table}, seed {seed}, turn {turn}"
                asyncio.run(live.act())
        finally:
            store.close()
