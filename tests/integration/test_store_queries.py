"""What the API reads, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.store import queries
from ejbd.store.models import Epoch, Job, Subjob
from ejbd.store.queries import PastInterval, Phase
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.store.store import Store
from ejbd.store.transitions import add_event, move_epoch, move_job, move_subjob
from ejbd.wire.kinds import EventKind
from tests.store_fixtures import make_epoch, make_job, make_subjob


def add_all(*rows: Any) -> Callable[[Session], None]:
    def change(session: Session) -> None:
        for row in rows:
            session.add(row)
            session.flush()

    return change


@pytest.fixture
def jobs(store: Store) -> Store:
    """ada: ab12, ab34, x%_y; bob: ab56; in this order."""
    store.write_sync(
        add_all(
            make_job("ab12", queue="debug", state="running"),
            make_job("ab34", state="waiting"),
            make_job("ab56", user="bob", state="waiting"),
            make_job("x%_y", state="completed"),
        )
    )
    return store


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["x%_y", "ab56", "ab34", "ab12"]),
        ({"user": "ada"}, ["x%_y", "ab34", "ab12"]),
        ({"states": {JobState.WAITING, JobState.RUNNING}}, ["ab56", "ab34", "ab12"]),
        ({"states": []}, []),
        ({"queue": "debug"}, ["ab12"]),
        ({"user": "bob", "queue": "debug"}, []),
        ({"limit": 2}, ["x%_y", "ab56"]),
    ],
)
def test_list_jobs(jobs: Store, asked: dict[str, Any], found: list[str]) -> None:
    assert [job.id for job in jobs.read_sync(lambda session: queries.list_jobs(session, **asked))] == found


def test_of_many_jobs_the_newest_are_sorted_and_searched(jobs: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(**asked: Any) -> list[str]:
        return [job.id for job in jobs.read_sync(lambda session: queries.list_jobs(session, **asked))]

    assert found(order="submitted", name_part="HEA") == ["x%_y", "ab56", "ab34", "ab12"]
    monkeypatch.setattr(queries, "SORTED_JOBS", 2)
    assert found(order="user") == ["x%_y", "ab56"] and found(order="-user", user="ada") == ["x%_y", "ab34"]
    monkeypatch.setattr(queries, "SEARCHED_JOBS", 3)
    assert found(name_part="hea") == ["x%_y", "ab56", "ab34"]
    assert found(name_part="hea", user="ada", states={JobState.RUNNING}) == ["ab12"]


def test_pages_of_jobs_join_without_a_gap(jobs: Store) -> None:
    seen: list[str] = []
    before = None
    while page := jobs.read_sync(lambda session, b=before: queries.list_jobs(session, limit=3, before_seq=b)):  # type: ignore[misc]
        seen += [job.id for job in page]
        before = page[-1].seq
    assert seen == ["x%_y", "ab56", "ab34", "ab12"]


@pytest.mark.parametrize(
    ("selector", "user", "all_users", "found"),
    [
        ("last", "ada", False, "x%_y"),
        ("last", "bob", True, "ab56"),
        ("ab12", "ada", False, "ab12"),
        ("ab1", "ada", False, "ab12"),
        ("ab", "bob", False, "ab56"),
        ("ab5", "ada", True, "ab56"),
        ("x%", "ada", False, "x%_y"),
    ],
)
def test_resolve_job(jobs: Store, selector: str, user: str, all_users: bool, found: str) -> None:
    job = jobs.read_sync(lambda session: queries.resolve_job(session, selector, user, all_users=all_users))
    assert job.id == found


@pytest.mark.parametrize(
    ("selector", "user", "code", "sentence"),
    [
        ("last", "eve", Code.NOT_FOUND, "eve has no job yet"),
        ("ab56", "ada", Code.NOT_FOUND, "there is no job 'ab56'"),
        ("%", "ada", Code.NOT_FOUND, "there is no job '%'"),
        ("a_1", "ada", Code.NOT_FOUND, "there is no job"),
        ("", "ada", Code.NOT_FOUND, "there is no job ''"),
        ("ab", "ada", Code.CONFLICT, "'ab' is the beginning of several jobs' ids: ab34, ab12"),
    ],
)
def test_resolve_job_refuses(jobs: Store, selector: str, user: str, code: Code, sentence: str) -> None:
    with pytest.raises(EjbError) as refused:
        jobs.read_sync(lambda session: queries.resolve_job(session, selector, user))
    assert refused.value.code is code and sentence in refused.value.message


def test_many_candidates_are_not_all_named(store: Store) -> None:
    store.write_sync(add_all(*(make_job(f"a{n}") for n in range(9))))
    with pytest.raises(EjbError, match=r"a8, a7, a6, a5, a4, \.\.\."):
        store.read_sync(lambda session: queries.resolve_job(session, "a", "ada"))


def test_job_counts_name_every_state(jobs: Store) -> None:
    counts = jobs.read_sync(queries.job_counts)
    assert counts == dict.fromkeys(JobState, 0) | {
        JobState.RUNNING: 1,
        JobState.WAITING: 2,
        JobState.COMPLETED: 1,
    }


def test_events_are_read_on_from_the_last_one_seen(jobs: Store) -> None:
    def happen(session: Session) -> None:
        for n in range(6):
            add_event(
                session,
                EventKind.DAEMON_STARTED if n % 2 else EventKind.JOB_FAULT,
                float(n),
                job_id="ab12" if n < 4 else None,
                n=n,
            )

    jobs.write_sync(happen)

    def read(session: Session) -> None:
        first = queries.events(session, 0, 4)
        rest = queries.events(session, first[-1].id, 4)
        assert [e.data["n"] for e in (*first, *rest)] == [0, 1, 2, 3, 4, 5]
        assert [e.data["n"] for e in queries.events(session, 0, 10, kinds=[EventKind.DAEMON_STARTED])] == [1, 3, 5]
        assert queries.events(session, 0, 10, kinds=[]) == []
        assert [e.data["n"] for e in queries.job_events(session, "ab12", first[0].id, 2)] == [1, 2]

    jobs.read_sync(read)


def test_subjobs_and_epochs_come_in_order(jobs: Store) -> None:
    jobs.write_sync(
        add_all(
            *(make_subjob("ab12", n) for n in (2, 0, 10, 1)),
            make_subjob("ab34", 0),
            *(make_epoch("ab12", n, 1.0) for n in (10, 2, 1)),
        )
    )
    assert [s.ordinal for s in jobs.read_sync(lambda s: queries.job_subjobs(s, "ab12"))] == [0, 1, 2, 10]
    assert [e.number for e in jobs.read_sync(lambda s: queries.job_epochs(s, "ab12"))] == [1, 2, 10]


class Story:
    """Tells a job's life to the database as the manager does; times are seconds after the submission at 1000."""

    def __init__(self, store: Store, **job: Any) -> None:
        self.store = store
        store.write_sync(add_all(make_job("j1", **job)))

    def job(self, at: float, new: JobState, **how: Any) -> None:
        self.store.write_sync(lambda s: move_job(s, s.scalars(select(Job)).one(), new, 1000 + at, **how))

    def launch(self, at: float, number: int, **values: Any) -> None:
        self.store.write_sync(add_all(make_epoch("j1", number, 1000 + at, **values)))

    def epoch(self, at: float, number: int, new: EpochState, **how: Any) -> None:
        self.store.write_sync(
            lambda s: move_epoch(s, s.scalars(select(Epoch).where(Epoch.number == number)).one(), new, 1000 + at, **how)
        )

    def told(self) -> list[tuple[str, float, float | None, int]]:
        found = self.store.read_sync(lambda s: queries.intervals(s, "j1"))
        for one, following in pairwise(found):
            assert one.end_s == following.start_s  # no gap, no overlap
        return [
            (i.kind.value, i.start_s - 1000, None if i.end_s is None else i.end_s - 1000, i.processors) for i in found
        ]


def test_the_timeline_of_a_job_that_moves(store: Store) -> None:
    story = Story(store)
    assert story.told() == [("wait", 0, None, 0)]
    story.job(1, JobState.WAITING)
    story.launch(10, 1, processors=4)
    assert story.told() == [("wait", 0, None, 0)]
    story.epoch(12, 1, EpochState.RUNNING)
    story.job(12, JobState.RUNNING)
    assert story.told() == [("wait", 0, 12, 0), ("run", 12, None, 4)]
    story.epoch(50, 1, EpochState.STOPPING)
    story.epoch(60, 1, EpochState.STOPPED)
    story.launch(60, 2, processors=8, members=["j1.1", "j1.2"], restart_from=1)
    assert story.told()[2:] == [("move", 50, 60, 4), ("move", 60, None, 8)]
    story.epoch(65, 2, EpochState.RUNNING)
    story.epoch(90, 2, EpochState.ENDED)
    story.job(90, JobState.ENDING)
    story.job(95, JobState.COMPLETED)
    assert story.told() == [
        ("wait", 0, 12, 0),
        ("run", 12, 50, 4),
        ("move", 50, 60, 4),
        ("move", 60, 65, 8),
        ("run", 65, 90, 8),
    ]
    last = store.read_sync(lambda s: queries.intervals(s, "j1"))[-1]
    assert last == PastInterval(Phase.RUN, 1065.0, 1090.0, 8, ("j1.1", "j1.2"))


def test_the_timeline_of_a_checkpoint_that_failed_and_a_setback(store: Store) -> None:
    story = Story(store)
    story.job(1, JobState.WAITING)
    story.launch(10, 1)
    story.epoch(10, 1, EpochState.RUNNING)
    story.job(10, JobState.RUNNING)
    story.epoch(20, 1, EpochState.STOPPING)
    story.epoch(25, 1, EpochState.RUNNING, setback=True, reason="disk full")
    story.epoch(40, 1, EpochState.FAILED, reason="worker lost")
    story.job(40, JobState.WAITING, setback=True)
    story.launch(70, 2)
    story.epoch(75, 2, EpochState.RUNNING)
    assert story.told() == [
        ("wait", 0, 10, 0),
        ("run", 10, 20, 4),
        ("move", 20, 25, 4),
        ("run", 25, 40, 4),
        ("wait", 40, 70, 0),
        ("move", 70, 75, 4),
        ("run", 75, None, 4),
    ]


def test_the_timeline_of_two_launches_of_a_script(store: Store) -> None:
    story = Story(store)
    story.launch(10, 1)
    story.epoch(11, 1, EpochState.RUNNING)
    story.epoch(20, 1, EpochState.ENDED)
    story.launch(30, 2, launch_ordinal=1)
    story.epoch(31, 2, EpochState.RUNNING)
    assert story.told() == [("wait", 0, 11, 0), ("run", 11, 20, 4), ("wait", 20, 31, 0), ("run", 31, None, 4)]


def test_the_timeline_of_a_job_cancelled_while_it_waits(store: Store) -> None:
    story = Story(store)
    story.job(30, JobState.CANCELLED)
    assert story.told() == [("wait", 0, 30, 0)]


def test_the_timeline_of_a_rigid_job(store: Store) -> None:
    story = Story(store, elastic=False, processes=16)
    store.write_sync(add_all(make_subjob("j1", 0, role="rigid")))
    story.job(1, JobState.WAITING)
    assert story.told() == [("wait", 0, None, 0)]
    story.job(40, JobState.RUNNING)
    store.write_sync(lambda s: move_subjob(s, s.scalars(select(Subjob)).one(), SubjobState.RUNNING, 1040.0))
    assert story.told() == [("wait", 0, 40, 0), ("run", 40, None, 16)]
    story.job(100, JobState.COMPLETED)
    assert story.told() == [("wait", 0, 40, 0), ("run", 40, 100, 16)]


def test_no_job_no_timeline(store: Store) -> None:
    assert store.read_sync(lambda s: queries.intervals(s, "nobody")) == []
