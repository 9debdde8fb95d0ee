"""The transition tables, driven at random: what they allow, what they refuse, and what each step leaves behind."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import Session

from ejbd.store.models import Base, Epoch, Event, Intent, Job, Operation, Subjob
from ejbd.store.states import (
    EPOCH,
    INTENT,
    JOB,
    OPERATION,
    SUBJOB,
    EpochState,
    IllegalTransition,
    IntentState,
    JobState,
    OperationState,
    SubjobState,
    Table,
)
from ejbd.store.store import Store
from ejbd.store.transitions import move_epoch, move_intent, move_job, move_operation, move_subjob
from tests.nightly import examples
from tests.store_fixtures import make_epoch, make_job, make_subjob

TABLES: list[Table[Any]] = [JOB, SUBJOB, EPOCH, OPERATION, INTENT]


def rank(table: Table[Any], state: StrEnum) -> int:
    """The length of the longest way to `state`: a step forward must raise it."""

    @cache
    def longest(to: StrEnum) -> int:
        return max((longest(before) + 1 for before, after in table.items() if to in after), default=0)

    return longest(state)


@pytest.mark.parametrize("table", TABLES)
def test_every_state_is_in_its_table_and_the_order_has_no_circle(table: Table[Any]) -> None:
    states: type[StrEnum] = type(next(iter(table)))
    assert set(table) == set(states)
    for state in states:
        rank(table, state)  # RecursionError on a circle


class Lives(RuleBasedStateMachine):
    """One of each entity in one database; any move may be tried at any time, and any may be rolled back."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = create_engine("sqlite://")
        Base.metadata.create_all(self.engine)
        self.session = Session(self.engine, expire_on_commit=False)
        self.now = 1000.0
        self.events = 0
        self.height: dict[str, tuple[int, int]] = {}
        self.setbacks: dict[str, int] = {}

    @initialize()
    def begin(self) -> None:
        job = make_job("j1")
        self.session.add_all([job, make_subjob("j1"), make_epoch("j1", 0, 1000.0)])
        self.session.add_all(
            [
                Operation(worker_id="w", job_id="j1", kind="launch", payload={}, state="queued", created_s=1000.0),
                Intent(kind="submit", job_id="j1", subjob_id="j1.0", state="pending", created_s=1000.0),
            ]
        )
        self.session.commit()

    def row(self, table: type[Any]) -> Any:
        return self.session.scalars(select(table)).one()

    def teardown(self) -> None:
        self.session.close()
        self.engine.dispose()

    @rule(new=st.sampled_from(JobState), setback=st.booleans(), keep=st.booleans())
    def job(self, new: JobState, setback: bool, keep: bool) -> None:
        job: Job = self.row(Job)
        before = job.incarnation
        self.attempt(
            job, JOB, new, lambda: move_job(self.session, job, new, self.now, setback=setback), keep, setback=setback
        )
        went_back = self.setbacks.get("jobs", 0)
        assert job.incarnation == 1 + went_back and job.incarnation >= before
        assert (job.end_s is not None) == JobState(job.state).terminal

    @rule(new=st.sampled_from(SubjobState), keep=st.booleans())
    def subjob(self, new: SubjobState, keep: bool) -> None:
        subjob: Subjob = self.row(Subjob)
        self.attempt(subjob, SUBJOB, new, lambda: move_subjob(self.session, subjob, new, self.now), keep)
        assert (subjob.end_s is not None) == SubjobState(subjob.state).terminal
        if subjob.start_s is not None:
            assert subjob.submit_s is not None and subjob.submit_s <= subjob.start_s

    @rule(new=st.sampled_from(EpochState), setback=st.booleans(), keep=st.booleans())
    def epoch(self, new: EpochState, setback: bool, keep: bool) -> None:
        epoch: Epoch = self.row(Epoch)
        self.attempt(
            epoch,
            EPOCH,
            new,
            lambda: move_epoch(self.session, epoch, new, self.now, setback=setback),
            keep,
            setback=setback,
        )
        assert (epoch.ended_s is None) == EpochState(epoch.state).live
        if epoch.state == EpochState.STOPPING:
            assert epoch.running_s is not None and epoch.stopping_s is not None

    @rule(new=st.sampled_from(OperationState), keep=st.booleans())
    def operation(self, new: OperationState, keep: bool) -> None:
        operation: Operation = self.row(Operation)
        silent = new is not OperationState.FAILED
        step = lambda: move_operation(self.session, operation, new, self.now)  # noqa: E731
        self.attempt(operation, OPERATION, new, step, keep, silent=silent)
        assert (operation.done_s is not None) == (not OPERATION[OperationState(operation.state)])

    @rule(new=st.sampled_from(IntentState), setback=st.booleans(), keep=st.booleans())
    def intent(self, new: IntentState, setback: bool, keep: bool) -> None:
        intent: Intent = self.row(Intent)
        self.attempt(
            intent,
            INTENT,
            new,
            lambda: move_intent(self.session, intent, new, self.now, setback=setback),
            keep,
            setback=setback,
        )
        assert (intent.done_s is not None) == (not INTENT[IntentState(intent.state)])

    def attempt(
        self,
        row: Any,
        table: Table[Any],
        new: Any,
        step: Any,
        keep: bool,
        *,
        setback: bool = False,
        silent: bool = False,
    ) -> None:
        """Try one move: it is refused and leaves nothing, or is kept or rolled back as one with its event."""
        self.now += 1.0
        old = type(new)(row.state)
        name = row.__tablename__
        self.session.info.pop("wake", None)
        try:
            step()
        except IllegalTransition:
            assert setback or new not in table[old]
            self.session.rollback()
            assert row.state == old
            return
        if new is old:
            assert not self.session.dirty and not self.session.new and "wake" not in self.session.info
            return
        assert table[old], "a terminal state was left"
        if not keep:
            self.session.rollback()
            assert row.state == old
            return
        self.session.commit()
        assert "job:j1" in self.session.info.get("wake", set()) or new == OperationState.LEASED
        if setback:
            self.setbacks[name] = self.setbacks.get(name, 0) + 1
        else:
            assert new in table[old]
        height = (self.setbacks.get(name, 0), rank(table, new))
        assert height > self.height.get(name, (0, rank(table, old)))
        self.height[name] = height
        if not silent:
            self.events += 1
            latest = self.session.scalars(select(Event).order_by(Event.id.desc()).limit(1)).one()
            assert latest.kind == f"{name.removesuffix('s')}.{new.value}"
            assert latest.at_s == self.now and latest.job_id == "j1" and latest.data["from"] == old.value

    @invariant()
    def one_event_a_move(self) -> None:
        assert self.session.scalar(select(func.count()).select_from(Event)) == self.events


TestLives = pytest.mark.slow(Lives.TestCase)
TestLives.settings = settings(
    max_examples=examples(60), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture
def session() -> Any:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as opened:
        yield opened
    engine.dispose()


def test_the_batch_systems_own_times_are_kept(session: Session) -> None:
    subjob = make_subjob("j1", submit_s=1001.0, start_s=1002.0, end_s=1600.0)
    session.add_all([make_job("j1"), subjob])
    session.flush()
    move_subjob(session, subjob, SubjobState.RUNNING, 1005.0)
    assert (subjob.submit_s, subjob.start_s, subjob.end_s) == (1001.0, 1002.0, 1600.0)
    move_subjob(session, subjob, SubjobState.TIMEOUT, 1700.0, reason="walltime")
    assert (subjob.end_s, subjob.reason) == (1700.0, "walltime")


def test_a_second_start_of_a_job_keeps_the_first(session: Session) -> None:
    job = make_job("j1", state="waiting", incarnation=1)
    session.add(job)
    session.flush()
    move_job(session, job, JobState.RUNNING, 1010.0)
    move_job(session, job, JobState.WAITING, 1020.0, setback=True, reason="worker lost", worker="w1")
    move_job(session, job, JobState.RUNNING, 1030.0)
    session.flush()
    assert (job.start_s, job.incarnation, job.reason) == (1010.0, 2, ""), "it runs: what was said before is over"
    told = [(e.kind, e.data) for e in session.scalars(select(Event).order_by(Event.id))]
    assert told[1] == ("job.waiting", {"from": "running", "reason": "worker lost", "worker": "w1", "incarnation": 2})


def test_a_step_forward_is_not_a_setback(session: Session) -> None:
    job = make_job("j1", state="waiting", incarnation=1)
    session.add(job)
    session.flush()
    with pytest.raises(IllegalTransition):
        move_job(session, job, JobState.RUNNING, 1010.0, setback=True)
    assert job.state == "waiting"


def test_a_pending_intent_wakes_the_executor(session: Session) -> None:
    intent = Intent(kind="submit", job_id="j1", state="executing", created_s=1000.0)
    session.add(intent)
    session.flush()
    move_intent(session, intent, IntentState.PENDING, 1001.0, setback=True, reason="not found by its tag")
    assert session.info["wake"] == {"intents", "events", "job:j1"}
    assert intent.error == "not found by its tag"


def test_a_failed_operation_says_which(session: Session) -> None:
    operation = Operation(
        worker_id="w1",
        job_id="j1",
        epoch=3,
        kind="checkpoint",
        payload={},
        state="leased",
        lease_until_s=9.0,
        created_s=1.0,
    )
    session.add(operation)
    session.flush()
    move_operation(session, operation, OperationState.FAILED, 1001.0, reason="disk full")
    event = session.scalars(select(Event)).one()
    assert (operation.error, operation.lease_until_s) == ("disk full", None)
    assert event.data == {
        "from": "leased",
        "reason": "disk full",
        "operation": "checkpoint",
        "seq": operation.seq,
        "epoch": 3,
        "worker": "w1",
    }


def test_commits_are_on_the_disk_before_they_are_acknowledged(sqlite_url: str) -> None:
    """No killed process tells the difference, but a power cut does."""
    store = Store(sqlite_url)

    def pragma(session: Session, name: str) -> object:
        return session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()

    try:
        assert store.write_sync(lambda s: pragma(s, "synchronous")) == 2, "FULL"
        assert store.write_sync(lambda s: pragma(s, "journal_mode")) == "wal"
    finally:
        store.close()
