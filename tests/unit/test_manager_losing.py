"""A queue where elastic jobs have lately ended later than J0 could hope to says so, stops, and tries again."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, event, select

from ejbd.core.lateness import (
    FEWEST_ENDS,
    FIRST_STOP_S,
    LONGEST_STOP_S,
    is_later,
    loses,
    promised_start,
    stop_s,
    used_part,
)
from ejbd.manager.acts.carrying import carry_out
from ejbd.manager.effects.ends import Final
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.rules.queues import losing
from ejbd.store.models import Event, Job
from ejbd.store.store import Store
from ejbd.wire.states import JobState
from tests.fakes.live import LiveWorld


async def ends(live: LiveWorld, job: str, count: int, promised_s: float) -> None:
    """So many jobs like this one end now, each promised a start at that time, with 10 s of work done."""

    def write(session: object) -> None:
        ctx = live.manager.world.context(session)  # type: ignore[arg-type]
        row = ctx.session.scalars(select(Job).where(Job.id == job)).one()
        row.rigid_start_s, row.work_s, row.work_rate = promised_s, 10.0, 0.0
        for _ in range(count):
            carry_out(ctx, losing.note_end(JobWorld(ctx, row), None, Final(JobState.COMPLETED)))  # type: ignore[arg-type]

    await live.store.write(write)


def told(live: LiveWorld, kind: str) -> list[dict[str, object]]:
    return live.store.read_sync(lambda s: list(s.scalars(select(Event.data).where(Event.kind == kind))))


async def test_a_queue_that_loses_stops_and_tries_again(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, stop_when_late="on")
    live.batch.free = 0
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    live.clock.now += 60.0  # more than its work, which J0 could have begun at once
    await live.poll(5)
    await ends(live, job, FEWEST_ENDS - 1, live.clock.now - 100.0)
    assert (await live.plan())["elastic"], "too few have ended"
    await ends(live, job, 1, live.clock.now - 100.0)
    plan = await live.plan()
    assert not plan["elastic"] and plan["code"] == "stopped"
    assert "20 of the last 20 elastic jobs ended later than J0 could hope to" in plan["why"]
    assert (await live.plan(elastic=True))["elastic"], "it asks to be"
    found = next(row for row in await live.manager.queues() if row["name"] == "batch")
    assert [pause["what"] for pause in found["paused"]] == ["promises"]
    assert "no job of queue batch is started early: 20 of the last 20" in (await live.manager.explain(job))["now"]
    live.batch.free = 16
    await live.poll(5)
    assert not any(subjob.role == "subjob" for subjob in live.subjobs(job)), "what waits is not started early"
    assert [one["what"] for one in told(live, "queue.paused")] == ["promises"]
    live.clock.now += FIRST_STOP_S
    await live.poll(5)
    assert [one["reason"] for one in told(live, "queue.resumed")] == ["its time is over"]
    await live.poll(5)
    assert (await live.plan())["elastic"]


async def test_it_stops_for_longer_where_it_is_late_again_and_an_operator_ends_it(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, stop_when_late="on")
    live.batch.free = 0
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    live.clock.now += 60.0  # more than its work, which J0 could have begun at once
    for _ in range(2):
        await ends(live, job, FEWEST_ENDS, live.clock.now - 100.0)
        await live.poll(5)
        live.clock.now += FIRST_STOP_S
        await live.poll(5)
    assert [one["pause_s"] for one in told(live, "queue.paused")] == [FIRST_STOP_S, 2 * FIRST_STOP_S]
    assert not (await live.plan())["elastic"]
    await live.manager.resume_queue("batch", "root")
    assert (await live.plan())["elastic"]


async def test_jobs_in_time_and_a_queue_without_the_rule_do_not_stop(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, stop_when_late="on")
    live.batch.free = 0
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    live.clock.now += 60.0  # more than its work, which J0 could have begun at once
    await ends(live, job, 2 * FEWEST_ENDS, live.clock.now + 100.0)
    assert (await live.plan())["elastic"]


async def test_without_a_stop_polls_ask_nothing_about_stops_and_with_one_they_do(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, stop_when_late="on")
    live.batch.free = 0
    await live.poll(1)
    job = await live.submit(walltime_s=1000.0)
    live.clock.now += 60.0
    await live.poll(5)
    asked: list[str] = []

    @event.listens_for(Engine, "before_cursor_execute")
    def heard(connection: object, cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    def of_stops() -> int:
        return sum("queue_pauses" in one and "until_s IS NOT NULL" in one for one in asked)

    try:
        before = of_stops()
        await live.poll(5)
        without = of_stops()
        await ends(live, job, FEWEST_ENDS, live.clock.now - 100.0)
        ended = of_stops()
        await live.poll(5)
        stopped = of_stops()
    finally:
        event.remove(Engine, "before_cursor_execute", heard)
    # Pauses of submissions are asked for in every poll by other rules; a stop that stands is one statement more.
    assert stopped - ended == without - before + 1


def test_the_rule() -> None:
    assert is_later(162.0, 0.0, 100.0, 0.5, 110.0) and not is_later(160.0, 0.0, 100.0, 0.5, 110.0)
    assert used_part([(4, 50.0, 200.0)] * 30) == 0.25 and used_part([(4, 50.0, 200.0)] * 10) == 1.0
    assert loses(30, 20) and not loses(30, 19) and not loses(FEWEST_ENDS - 1, FEWEST_ENDS - 1)
    assert [stop_s(n) for n in (0, 1, 9)] == [FIRST_STOP_S, 2 * FIRST_STOP_S, LONGEST_STOP_S]
    times, levels = [0.0] * 20, [0] * 20
    # 4 of 8 free, the others at 100: the first in the queue takes all 8 then, until 300; the second fits before it,
    # and the third would not, so it waits for its end.
    ends, freed = [100.0], [4]
    starts = [
        promised_start([8, 4, 4], [200.0, 100.0, 150.0], count, ends, freed, 1, 4, 0.0, times, levels)
        for count in (1, 2, 3)
    ]
    assert starts == [100.0, 0.0, 300.0]
