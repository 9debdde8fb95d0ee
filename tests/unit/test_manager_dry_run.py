"""What a dry run says is what the daemon does with the same slots, and what the simulator does with the same state."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import Session

from ejbd.config import Elasticity, QueueSettings, Settings
from ejbd.core.bundling.parameters import Guard, Order
from ejbd.core.room.slots import margins_of
from ejbd.core.room.walltimes import slack
from ejbd.core.view import BatchJobView, BatchState, ClusterView, Reservations
from ejbd.manager.acts.carrying import carry_out
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.hands.hands import Hands
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import JobKind, JobSpec, Reading
from ejbd.manager.rules.planning.decide import Decider
from ejbd.manager.submission import dryrun, intake
from ejbd.sim.elastic import become_elastic
from ejbd.sim.offering import offer_slots
from ejbd.sim.world import Costs
from ejbd.store.models import Base, Event, Job, Subjob
from ejbd.store.states import SubjobState
from tests.fakes.live import some
from tests.fakes.room_states import START_S, State, states
from tests.nightly import examples


@dataclass(frozen=True)
class Submission:
    """A job of the state's cluster, and the settings that it meets."""

    processes: int
    walltime_s: float
    engine: str = "application"
    lambda_s: float = 60.0
    poll_s: float = 5.0
    suspend: bool = True
    omax: int = 8
    guard: Guard = Guard.OFF

    def settings(self, folder: Path) -> Settings:
        queue = QueueSettings(
            elasticity=Elasticity.ON, min_processors=1, lambda_s=self.lambda_s, suspend=self.suspend, omax=self.omax,
            order=Order.ARRIVAL, guard=self.guard,
        )  # fmt: skip
        return Settings(state_dir=folder, poll_s=self.poll_s, queues={"default": queue})

    def reading(self) -> Reading:
        return Reading(
            JobSpec(
                name="heat", kind=JobKind.COMMAND, argv=("./heat",), processes=self.processes,
                walltime_s=self.walltime_s, cwd="/", output="out", engine=self.engine,
            )
        )  # fmt: skip


@st.composite
def submissions(draw: st.DrawFn, most: int, limit_s: float | None) -> Submission:
    longest = int(limit_s or 20_000)
    return Submission(
        draw(st.integers(1, most)),
        float(draw(st.integers(1, longest))),
        draw(st.sampled_from(["application", "none"])),
        float(draw(st.integers(0, 200))),
        draw(st.sampled_from([0.5, 5.0, 60.0])),
        draw(st.booleans()),
        draw(st.sampled_from([2, 8, 64])),
        draw(st.sampled_from(Guard)),
    )


Asked = tuple[int, float, float]
"""Of a subjob: processors, walltime, and for how long ranks are planned on it."""

cases = states().flatmap(lambda state: st.tuples(st.just(state), submissions(state.total, state.max_walltime_s)))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = create_engine("sqlite://")
    Base.metadata.create_all(made)
    yield made
    made.dispose()


class Daemon:
    """One transaction of a manager with a view, which is rolled back."""

    def __init__(self, session: Session, folder: Path, submission: Submission, view: ClusterView) -> None:
        self.submission = submission
        settings = submission.settings(folder)
        self.ctx = Context(session, START_S, settings, Hands(Spool(folder)), view)

    def says(self) -> dict[str, Any]:
        """The decision of a dry run."""
        _, found = dryrun.plan(self.ctx, self.submission.reading(), "ada")
        return some(found["decision"])

    def does(self, state: State) -> tuple[dict[str, Any], list[Asked]]:
        """The decision that is stored about the job at a poll, and the subjobs that are asked for."""
        ctx, session = self.ctx, self.ctx.session
        [answer] = intake.store(ctx, [intake.Submission(self.submission.reading(), "ada", None, "hash")])
        assert isinstance(answer, intake.Accepted)
        id = answer.id
        world = JobWorld(ctx, session.scalars(select(Job).where(Job.id == id)).one())
        carry_out(world, Decider(ctx).receive(world))
        (j0,) = world.subjobs
        j0.state, j0.submit_s = SubjobState.PENDING, START_S - 10_000.0  # it had its chance to start as it is
        waits = BatchJobView("j0", j0.tag, "ada", "q", BatchState.PENDING, j0.processors, j0.walltime_s, blocked=True)
        ctx.view = state.view(waits)
        carry_out(world, Decider(ctx).decide(world))
        session.flush()
        (told,) = session.scalars(select(Event).where(Event.job_id == id, Event.kind.startswith("decision.")))
        asked = []
        for subjob in session.scalars(select(Subjob).where(Subjob.job_id == id, Subjob.role == "subjob")):
            subjob.start_s = START_S
            asked.append((subjob.processors, subjob.walltime_s, world.usable_end(subjob) - START_S))
        return dict(told.data["decision"]), asked


def simulated(state: State, submission: Submission, kept_s: float, lambda_s: float) -> list[Asked]:
    """What the simulator gives the job when it is shown the same state."""
    margins = margins_of(submission.poll_s, kept_s - lambda_s)
    costs = Costs(slack_s=slack(kept_s, margins), margins=margins)
    parameters = state.parameters(
        lambda_s=lambda_s, suspend=submission.suspend, omax=submission.omax, guard=submission.guard
    )
    w = state.world((submission.processes, submission.walltime_s), costs)
    become_elastic(w, 1)
    offer_slots(w, parameters.rules)
    row = w.row[1]
    if row < 0:
        return []
    ends, until = ([end - START_S for end in vector[row]] for vector in (w.held.ends, w.held.walltime_ends))
    return [(w.held.processors[row][i], until[i], ends[i]) for i in range(w.held_count[1])]


NARROW = State(Reservations.NODES, 4, 4, True, ((8, 900.0),), 14, True, 60.0, None)
SHARED = State(Reservations.PROCESSORS, 4, 4, False, ((11, 900.0),), 14, False, 1.0, 3600.0)
LATE = State(Reservations.PROCESSORS, 7, 4, True, ((4, 1.0),), 0, False, 1.0, 900.0)


def decided(engine: Engine, state: State, submission: Submission) -> tuple[str, list[Asked]]:
    """What is decided, and the subjobs: the same said, done and simulated."""
    with tempfile.TemporaryDirectory() as folder, Session(engine) as session:
        daemon = Daemon(session, Path(folder), submission, state.view())
        said = daemon.says()
        done, asked = daemon.does(state)
        cost = JobWorld(daemon.ctx, session.scalars(select(Job)).one()).cost
        session.rollback()
    assert said | {"job": ""} == done | {"job": ""}
    if submission.engine == "application":  # a simulated application can be moved
        assert sorted(simulated(state, submission, cost.kept_s, cost.lambda_s)) == sorted(asked)
    return done["kind"], asked


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(cases)
@example((NARROW, Submission(16, 420.0, "none", lambda_s=0.0, poll_s=30.0, suspend=False)))
@example((SHARED, Submission(16, 223.0, "none", suspend=False)))
@example((LATE, Submission(25, 451.0, lambda_s=132.0, poll_s=0.5, omax=2, guard=Guard.OFF)))
@example((LATE, Submission(25, 451.0, lambda_s=132.0, poll_s=0.5, omax=2, guard=Guard.ON)))
def test_the_dry_run_the_daemon_and_the_simulator_decide_the_same(
    engine: Engine, case: tuple[State, Submission]
) -> None:
    state, submission = case
    kind, asked = decided(engine, state, submission)
    event(f"{kind} of {len(asked)} subjobs, {state.by}")


@pytest.mark.parametrize("by", Reservations)
def test_so_they_do_about_two_subjobs(engine: Engine, by: Reservations) -> None:
    """One for the whole run, and another until the head starts."""
    state = State(by, 4, 4, by is Reservations.NODES, ((8, 5000.0),), 12, by is Reservations.NODES, 60.0, None)
    kind, asked = decided(engine, state, Submission(16, 3000.0))
    assert (kind, len(asked)) == ("start", 2)


def test_a_dry_run_leaves_out_what_a_poll_takes(engine: Engine, tmp_path: Path) -> None:
    """840 s fit into the 900 s until the head starts, but not where a poll takes 30 s of them and the tail 32 s."""
    kinds = []
    for poll_s in (5.0, 30.0):
        submission = Submission(16, 420.0, "none", suspend=False, poll_s=poll_s, lambda_s=0.0)
        with Session(engine) as session:
            daemon = Daemon(session, tmp_path, submission, NARROW.view())
            kinds.append(daemon.says()["kind"])
            session.rollback()
    assert kinds == ["start", "nothing"]
