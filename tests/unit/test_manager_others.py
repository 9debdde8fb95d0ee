"""Batch jobs that are not EJB's: what polls note of them, and what they gained and lost by elastic ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from ejbd.batch.base import NO_MARKS, BatchEnd, Mark
from ejbd.batch.pbs import openpbs, torque
from ejbd.batch.pbs.states import number_of
from ejbd.core.hindsight import Kept, Submitted
from ejbd.core.sitelimits import Each, SiteLimit, SiteRules
from ejbd.core.view import AccountLimit, BatchJobView, BatchState, Counted, SiteReservation
from ejbd.errors import BatchError, Code, EjbError
from ejbd.manager.facts.past.hindsight import DAY_S, Day, Known, Pool, read_day, replayed
from ejbd.manager.service.replaying import replay_beside
from ejbd.manager.telling.others import others
from ejbd.manager.telling.savings import By
from ejbd.store.models import Job, OtherDay, OtherGap, OtherJob, OtherPriority, OtherReplay, Subjob
from ejbd.store.retention import prune_others
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.fakes.pbs.recorded import said
from tests.fakes.port import subjob_row

PENDING, RUNNING, COMPLETED = BatchState.PENDING, BatchState.RUNNING, BatchState.COMPLETED


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def other(live: LiveWorld, id: str = "7", state: BatchState = PENDING, **values: Any) -> BatchJobView:
    given: dict[str, Any] = {"walltime_s": 100.0, "submit_s": live.clock.now, "foreign": True}
    given |= {"user": "eve", "processors": 8}
    if state is not PENDING:
        given["start_s"] = live.clock.now
    return BatchJobView(id, "ejb-0.0", queue="batch", state=state, **(given | values))


def rows(live: LiveWorld) -> list[OtherJob]:
    return live.store.read_sync(lambda s: list(s.scalars(select(OtherJob).order_by(OtherJob.seq))))


async def test_a_job_is_noted_as_it_waits_runs_and_ends_and_written_where_it_changed(live: LiveWorld) -> None:
    submit_s = live.clock.now
    live.batch.others = [other(live)]
    await live.poll()
    await live.poll(5)
    live.batch.others = [replace(live.batch.others[0])]  # read anew, and the same
    await live.poll(5)
    (row,) = rows(live)
    assert (row.user, row.ready_s, row.start_s, row.open) == ("eve", submit_s, None, True)
    assert row.changed_s == submit_s  # of three looks the first alone wrote
    live.batch.others = [
        replace(live.batch.others[0], state=RUNNING, start_s=live.clock.now, end_s=live.clock.now + 100)
    ]
    await live.poll(5)
    live.batch.others = []
    await live.poll(5)
    (row,) = rows(live)
    assert (row.start_s, row.end_s, row.open) == (submit_s + 10, live.clock.now, False)


async def test_what_waits_for_more_than_room_is_ready_once_that_is_over(live: LiveWorld) -> None:
    live.batch.others = [other(live, blocked=True), other(live, "8", BatchState.HELD, start_s=None)]
    await live.poll()
    assert [row.ready_s for row in rows(live)] == [None, None]
    live.batch.others = [replace(live.batch.others[0], blocked=False), replace(live.batch.others[1], state=RUNNING)]
    live.batch.others[1] = replace(live.batch.others[1], start_s=live.clock.now + 30)
    await live.poll(40)
    assert [row.ready_s for row in rows(live)] == [live.clock.now, live.clock.now - 10]


async def test_a_job_that_runs_again_and_one_with_an_old_number_are_further_jobs(live: LiveWorld) -> None:
    live.batch.others = [other(live, "7", RUNNING), other(live, "8", RUNNING)]
    await live.poll()
    again = replace(live.batch.others[0], state=PENDING, start_s=None)
    live.batch.others = [again, other(live, "8", RUNNING, submit_s=live.clock.now + 1, start_s=live.clock.now + 5)]
    await live.poll(5)
    assert [(row.batch_id, row.open, row.end_s is None) for row in rows(live)] == [
        *(("7", False, False), ("8", False, False)),
        *(("7", True, True), ("8", True, True)),
    ]


async def test_ejbs_own_waiting_arrays_and_jobs_cancelled_in_the_queue_are_told_apart(live: LiveWorld) -> None:
    job = await live.submit()
    array = other(live, "9_[1-5]")
    # An element of an array that EJB passed through is noted, too: its own row is the whole array's.
    through = [other(live, id, RUNNING, foreign=False, tag="ejb-0.0") for id in ("11_3", "12[4].head")]
    live.batch.others = [other(live, "7"), array, other(live, "9_1", RUNNING), *through]
    await live.poll()
    assert live.batch.of(f"ejb-{job}.0")
    assert [row.batch_id for row in rows(live)] == ["7", "9_1", "11_3", "12[4].head"]
    gone = replace(live.batch.others[0], state=BatchState.CANCELLED, start_s=live.clock.now, end_s=live.clock.now)
    live.batch.others[0] = gone
    await live.poll(5)
    assert (rows(live)[0].start_s, rows(live)[0].open) == (None, False)


async def test_a_job_that_started_has_the_priority_with_which_it_waited_last(live: LiveWorld) -> None:
    live.batch.others = [other(live, "7", priority=5), other(live, "8", priority=9)]
    await live.poll()
    live.batch.others = [replace(live.batch.others[0], priority=6), live.batch.others[1]]
    await live.poll(5)
    begun = live.clock.now
    live.batch.others = [
        replace(live.batch.others[0], priority=0, state=RUNNING, start_s=begun),
        replace(live.batch.others[1], priority=0, state=BatchState.CANCELLED, end_s=begun),
    ]
    await live.poll(5)
    assert live.manager.neighbours.others is not None and live.manager.neighbours.others.priorities["7"] == 6
    await live.restart()
    await live.poll(5)
    assert live.manager.neighbours.others is not None and live.manager.neighbours.others.priorities["7"] == 6, (
        "over a restart, too"
    )
    view, seen = live.manager.world.view, live.manager.neighbours.others.priorities
    assert view is not None
    day_s = begun - begun % DAY_S
    day = live.store.read_sync(lambda s: read_day(s, view, day_s, begun + 10, Known(seen)))
    assert [(job.id, job.priority) for pool in day.pools.values() for job, _ in pool.real] == [("o1", 6)]
    assert live.store.read_sync(lambda s: len(list(s.scalars(select(OtherPriority))))) == 2
    await prune_others(live.store, live.clock.now + 40 * DAY_S, 1, 30)
    assert live.store.read_sync(lambda s: list(s.scalars(select(OtherPriority)))) == []


async def test_what_came_and_went_while_the_daemon_was_away_is_asked_for_or_unknown(live: LiveWorld) -> None:
    live.batch.others = [other(live, "7", RUNNING), other(live, "8", RUNNING), other(live, "9", RUNNING)]
    await live.poll()
    before = live.clock.now
    await live.restart()
    live.clock.now += 3600
    late = other(live, "10", COMPLETED, submit_s=before + 10, start_s=before + 20, end_s=live.clock.now - 60)
    live.batch.others = [live.batch.others[2], late]
    asked: list[list[str]] = []

    async def outcomes(ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        asked.append(list(ids))
        assert marks == {id: Mark("", before) for id in ids}, "what else got the number is another job"
        return {"7": BatchEnd(COMPLETED, 0, before + 50, "accounting")}

    live.batch.outcomes = outcomes  # type: ignore[method-assign]
    await live.poll()
    assert asked == [["7", "8"]]
    found = {row.batch_id: (row.end_s, row.open) for row in rows(live)}
    assert found == {
        "7": (before + 50, False),
        "8": (None, False),
        "9": (None, True),
        "10": (live.clock.now - 60, False),
    }
    gaps = live.store.read_sync(lambda s: list(s.scalars(select(OtherGap).order_by(OtherGap.until_s))))
    assert [(gap.from_s, gap.until_s) for gap in gaps] == [(0.0, before), (before, live.clock.now)]


async def test_a_batch_system_that_does_not_tell_ends_keeps_no_poll(live: LiveWorld) -> None:
    live.batch.others = [other(live, "7", RUNNING)]
    await live.poll()
    live.batch.others = []

    async def outcomes(ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        raise BatchError("sacct does not answer", transient=True)

    live.batch.outcomes = outcomes  # type: ignore[method-assign]
    await live.poll(3600)
    assert (rows(live)[0].end_s, rows(live)[0].open, live.manager.poller.error) == (None, False, "")


async def test_a_look_that_sees_no_others_ends_none(live: LiveWorld) -> None:
    live.batch.others = [other(live, "7", RUNNING)]
    await live.poll()
    live.batch.others, live.batch.blind = [], "Slurm hides them"
    await live.poll(5)
    assert rows(live)[0].open


async def test_where_none_are_to_be_kept_none_are_noted(live: LiveWorld) -> None:
    live.settings = live.settings.model_copy(
        update={"limits": live.settings.limits.model_copy(update={"others_retention_days": 0.0})}
    )
    await live.restart()
    live.batch.others = [other(live, "7", RUNNING)]
    await live.poll()
    assert rows(live) == [] and await live.manager.hindsight.look() > 0


async def test_a_write_that_fails_is_made_good_by_the_next_poll(live: LiveWorld, monkeypatch: Any) -> None:
    live.batch.others = [other(live, "7", RUNNING)]
    write, failing = live.store.write, [True]

    async def fails(fn: Any, **more: Any) -> Any:
        if failing and getattr(fn, "__self__", None).__class__.__name__ == "Noting":
            failing.clear()
            raise EjbError(Code.STORE, "the disk is full")
        return await write(fn, **more)

    monkeypatch.setattr(live.store, "write", fails)
    await live.poll()
    assert rows(live) == [] and not failing
    await live.poll(5)
    assert [row.batch_id for row in rows(live)] == ["7"]


async def test_an_elastic_job_that_let_another_start_has_its_gain_by_user_and_day(live: LiveWorld) -> None:
    """All 32 processors are taken for 100 s; then the elastic job runs on 8 of them, and another beside it."""
    begun = live.clock.now
    live.batch.free = 0
    first = other(live, "7", RUNNING, processors=32, user="bob")
    live.batch.others = [first]
    await live.poll()
    job = await live.submit(processes=32, walltime_s=400)
    waits = other(live, "8", submit_s=live.clock.now + 1, processors=24, user="eve")
    live.batch.others = [first, waits]
    await live.poll(5)
    live.clock.now = begun + 100
    live.batch.others = [
        replace(first, state=COMPLETED, end_s=begun + 100),
        replace(waits, state=RUNNING, start_s=begun + 101),
    ]
    await live.poll()

    def elastic(session: Any) -> None:  # it ran for 400 s on 8, which is 100 s at full width
        j0 = update(Subjob).where(Subjob.job_id == job, Subjob.ordinal == 0)
        session.execute(j0.values(submit_s=begun, start_s=None, end_s=begun + 100, state="cancelled"))
        times = {"submit_s": begun, "start_s": begun + 100, "end_s": begun + 500}
        session.add(subjob_row(job, 1, batch_id="900", processors=8, walltime_s=400, state="completed", **times))
        ended = {"state": "completed", "start_s": begun + 100, "end_s": begun + 500, "work_s": 100.0, "work_rate": 0.0}
        session.execute(update(Job).where(Job.id == job).values(submit_s=begun, **ended))

    live.store.write_sync(elastic)
    live.clock.now = begun + 600
    await live.poll()
    assert await live.manager.hindsight.look() == 6  # five days back, and today
    found = live.store.read_sync(lambda s: list(s.scalars(select(OtherDay).order_by(OtherDay.user))))
    told = [(row.user, row.queue, row.jobs, row.gained, row.lost) for row in found]
    assert told == [("bob", "batch", 1, 0, 0), ("eve", "batch", 1, 1, 0)]
    bob, eve = found
    assert (bob.gained_s, bob.error_s) == (0, 0)
    # Behind the rigid job it would have begun at 200; EASY has it begin at 100, and it really did at 101.
    assert (eve.gained_s, eve.error_s, eve.before_real_s, eve.lost_s) == (100, 1, 99, 0)


def limit(most: float, counted: Counted = Counted.JOBS, each: Each = Each.ALL, **of: Any) -> SiteLimit:
    return SiteLimit(AccountLimit("a limit", counted, most, **of), each)


async def test_a_limit_is_played_so_that_what_it_held_is_lost_where_an_elastic_job_took_it(live: LiveWorld) -> None:
    """Eve's second job stands on her own limit, and mallory's on the account's, of which a subjob has 8 for long."""
    begun = live.clock.now
    account = limit(16, Counted.PROCESSORS, accounts=("phys",))
    of_eve = limit(1, each=Each.USER, qos="normal")
    live.batch.rules = SiteRules((account, of_eve), frozenset({"ada", "eve", "mallory", "bob"}))
    live.batch.free = 0
    job = await live.submit(processes=16, walltime_s=400)
    await live.poll()
    second = other(live, "8", processors=4, qos="normal", blocked=True, limited=True, limited_by=Counted.JOBS)
    third = other(live, "9", processors=16, user="mallory", account="phys", blocked=True, limited=True)
    third = replace(third, limited_by=Counted.PROCESSORS, submit_s=begun + 1)  # behind the elastic job
    unknown = other(live, "10", processors=1, user="bob", qos="long", blocked=True, limited=True)
    first = other(live, "7", RUNNING, processors=4, qos="normal")
    live.batch.others = [first, second, third, unknown]
    await live.poll(5)
    waiting = [(row.limited_by, row.ready_s, row.eligible_s) for row in rows(live)]
    assert waiting == [
        *((None, begun, begun), ("JOBS", None, begun), ("PROCESSORS", None, begun + 1), ("OTHER", None, begun)),
    ]

    def elastic(session: Any) -> None:  # it ran for 400 s on 8, which is 200 s at full width
        j0 = update(Subjob).where(Subjob.job_id == job, Subjob.ordinal == 0)
        session.execute(j0.values(batch_id="800", submit_s=begun, start_s=None, end_s=begun, state="cancelled"))
        times = {"submit_s": begun, "start_s": begun, "end_s": begun + 400}
        session.add(subjob_row(job, 1, batch_id="900", processors=8, walltime_s=400, state="completed", **times))
        ended = {"state": "completed", "start_s": begun, "end_s": begun + 400, "work_s": 200.0, "work_rate": 0.0}
        session.execute(update(Job).where(Job.id == job).values(submit_s=begun, **ended))

    live.store.write_sync(elastic)
    seen = live.manager.neighbours.others
    assert seen is not None
    seen.charges.update({"800": ("phys", "normal"), "900": ("phys", "normal")})
    live.clock.now = begun + 450
    times: dict[str, Any] = {"blocked": False, "limited": False, "limited_by": None, "state": COMPLETED}
    live.batch.others = [
        replace(first, state=COMPLETED, end_s=begun + 300),
        replace(second, start_s=begun + 300, end_s=begun + 310, **times),
        replace(third, start_s=begun + 400, end_s=begun + 410, **times),
        replace(unknown, start_s=begun + 350, end_s=begun + 360, **times),
    ]
    await live.poll()
    await live.manager.hindsight.look()
    found = live.store.read_sync(lambda s: list(s.scalars(select(OtherDay).order_by(OtherDay.user))))
    told = {row.user: (row.gained, row.lost, row.lost_s, row.error_s, row.unsure) for row in found}
    # Eve's waited for herself. Mallory's would have begun at 200, behind the rigid job. Bob's limit is not known.
    assert told == {"bob": (0, 0, 0, 0, 1), "eve": (0, 0, 0, 0, 0), "mallory": (0, 1, 200, 0, 0)}
    live.batch.rules = None  # then what waited for a limit is ready once it was over, and the page says so
    await live.manager.hindsight.look()
    found = live.store.read_sync(lambda s: list(s.scalars(select(OtherDay).order_by(OtherDay.user))))
    assert [(row.user, row.lost, row.unsure) for row in found] == [("bob", 0, 1), ("eve", 0, 1), ("mallory", 0, 1)]
    since = (None, 0.0, live.clock.now, (By.DAY,))
    assert live.store.read_sync(lambda s: others(s, *since)).limits == "the accounts do not answer"


async def test_what_own_jobs_are_charged_to_and_maintenance_are_kept_over_a_restart(live: LiveWorld) -> None:
    begun = live.clock.now
    live.batch.account = "phys"
    job = await live.submit()
    await live.poll()
    id = live.batch.of(f"ejb-{job}.0").id
    live.batch.jobs[id] = replace(live.batch.jobs[id], account="phys", qos="long")
    live.batch.reserved = (
        SiteReservation("kept", begun + 50, begun + 90, ("n1",)),
        SiteReservation("maint", begun + 100, begun + 200, ("n1",), what="maintenance"),
    )
    await live.poll(5)
    live.batch.start(f"ejb-{job}.0")
    live.batch.reserved = ()
    await live.poll(145)
    await live.restart()
    await live.poll(5)
    seen = live.manager.neighbours.others
    assert seen is not None and seen.charges[id] == ("phys", "long")
    view = live.manager.world.view
    assert view is not None
    day_s = begun - begun % DAY_S
    day = live.store.read_sync(lambda s: read_day(s, view, day_s, live.clock.now))
    assert [pool.kept for pool in day.pools.values()] == [[Kept(begun + 100, begun + 150, 32)]], "it was given up"


@pytest.mark.parametrize(
    ("read", "recording", "command", "running", "waiting"),
    [
        (openpbs.jobs, "openpbs-states", "qstat -tf -F json", ["4", "22[0]", "22[1]", "22[2]", "22[3]"], ["21"]),
        (torque.jobs, "torque-qstat-x.xml", "qstat -x", ["0", "2"], ["1", "3"]),
    ],
)
async def test_what_pbs_lists_of_others_is_noted_once_and_ends_when_it_is_listed_no_more(
    live: LiveWorld, read: Any, recording: str, command: str, running: list[str], waiting: list[str]
) -> None:
    """As recorded of real ones; every poll reads all of it anew."""
    text = said(recording, command).stdout
    live.clock.now = 1_795_243_600.0

    def listed() -> list[BatchJobView]:
        found, unparsed = read(text, "ada", live.clock.now)
        assert unparsed == 0
        return [row.view for row in found]

    live.batch.others = listed()
    await live.poll()
    first = {number_of(row.batch_id): row for row in rows(live)}
    assert {id for id, row in first.items() if row.start_s is not None} == set(running)
    assert {id for id, row in first.items() if row.start_s is None and row.ready_s == row.submit_s} == set(waiting)
    assert {row.user for row in first.values()} == {"pbstest"} and all(row.walltime_s for row in first.values())
    live.batch.others = listed()
    await live.poll(5)
    assert {row.changed_s for row in rows(live)} == {first[waiting[0]].changed_s}  # nothing was written again
    live.batch.others = [one for one in listed() if number_of(one.id) != running[0]]
    await live.poll(5)
    assert [(number_of(row.batch_id), row.end_s) for row in rows(live) if not row.open] == [
        (running[0], live.clock.now)
    ]


@pytest.mark.slow
async def test_a_large_day_is_replayed_by_a_program_of_its_own_with_the_same_rows() -> None:
    pool = Pool(8)
    pool.real = [(Submitted(f"o{at}", 4, 100.0, 10.0 * at, 90.0), 60.0 * at) for at in range(6)]
    pool.rigid = [Submitted("r", 8, 50.0, 5.0, 50.0)]
    day = Day(0.0, {0: pool}, {f"o{at}": (f"user{at % 2}", "batch") for at in range(6)})
    rows = await replay_beside(day, few=0)
    assert rows == replayed(day) and {row["user"] for row in rows} == {"user0", "user1"}
    assert sum(row["gained"] for row in rows) > 0
    day.of.clear()
    with pytest.raises(EjbError, match="the replay of a day failed: KeyError"):
        await replay_beside(day, few=0)


async def test_a_day_is_replayed_until_a_day_after_it_and_then_left_alone(live: LiveWorld) -> None:
    live.batch.others = [other(live, "7", RUNNING)]
    await live.poll()
    assert await live.manager.hindsight.look() == 6
    assert await live.manager.hindsight.look() == 1  # today
    live.clock.now += DAY_S
    await live.poll()
    assert await live.manager.hindsight.look() == 3  # the day before the first one is over for a day
    live.clock.now += DAY_S
    await live.poll()
    await live.manager.hindsight.look()
    assert await live.manager.hindsight.look() == 1
    done = live.store.read_sync(lambda s: list(s.scalars(select(OtherReplay).order_by(OtherReplay.day_s))))
    assert len(done) == 8 and done[0].away_s > 0


async def test_what_is_old_goes_and_what_is_open_stays(live: LiveWorld) -> None:
    live.batch.others = [other(live, "7", RUNNING), other(live, "8", RUNNING)]
    await live.poll()
    live.batch.others = live.batch.others[1:]
    await live.poll(5)
    await live.manager.hindsight.look()
    now = live.clock.now + 8 * DAY_S
    assert await prune_others(live.store, now, 7, 90) == 1
    assert [row.batch_id for row in rows(live)] == ["8"]
    assert await prune_others(live.store, now + 90 * DAY_S, 7, 90) > 0
    assert live.store.read_sync(lambda s: list(s.scalars(select(OtherDay)))) == []
