"""Rule B, live: planned by the user's last two runs, and raised to the request before that is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.api.models import Explanation
from ejbd.config import Elasticity
from ejbd.core.speculation.raising import ahead_s, planned_s
from ejbd.core.view import BatchState
from ejbd.manager.acts.pastruns import take_in
from ejbd.store.store import Store
from ejbd.wire.toldruns import ToldRun
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql

OWN_S = 7200.0
FIRST_S = 900.0


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    """A queue whose jobs are all planned so; the user's last two runs took 800 and 1,000 s."""
    runs = [
        ToldRun(at, user, "wave", "", 8, run_s, OWN_S, outcome, 100.0 + at)
        for at, (user, run_s, outcome) in enumerate(
            [("ada", 5000.0, "completed"), ("ada", 800.0, "failed"), ("ada", 1000.0, "completed"),
             ("ada", 60.0, "timeout"), ("eve", 30.0, "completed")]
        )
    ]  # fmt: skip
    store.write_sync(lambda session: take_in(session, runs))
    return LiveWorld(tmp_path, store, elasticity=Elasticity.OFF, raised="all")


def limits(live: LiveWorld) -> list[str]:
    return [call for call in live.batch.calls if call.startswith("limit")]


async def planned(live: LiveWorld, **spec: Any) -> str:
    """A job that waits, and whose limit was lowered."""
    job = await live.submit(4, walltime_s=OWN_S, **spec)
    await live.poll(1)
    assert live.batch.of(f"ejb-{job}.0").walltime_s == FIRST_S, live.events(job)
    return job


async def begun(live: LiveWorld, **spec: Any) -> str:
    job = await planned(live, **spec)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    return job


async def test_it_is_lowered_once_it_was_seen_that_it_can_be_raised(live: LiveWorld) -> None:
    job = await planned(live)
    assert limits(live) == [f"limit 100 {OWN_S + 1:g}", f"limit 100 {FIRST_S:g}"], "by a quantum, and then down"
    explained = await live.manager.explain(job)
    assert f"planned with {FIRST_S:g} s, and raised to {OWN_S:g} s before that is over" in explained["now"]
    known = Explanation.model_validate(explained).walltimes
    assert known is not None and known.raised is not None and known.raised.first_s == FIRST_S
    for _ in range(3):
        await live.poll(5)
    assert len(limits(live)) == 2 and "subjob.altered" not in live.kinds(job)


async def test_it_is_raised_straight_to_the_request_before_the_plan_is_over(live: LiveWorld) -> None:
    job = await begun(live)
    await live.poll(FIRST_S - ahead_s(live.settings.poll_s) - 10)
    assert len(limits(live)) == 2
    await live.poll(10)
    await live.poll(5)
    assert limits(live)[2:] == [f"limit 100 {OWN_S:g}"], "once"
    assert live.batch.of(f"ejb-{job}.0").walltime_s == live.subjobs(job)[0].walltime_s == OWN_S
    told = [data["reason"] for kind, data in live.events(job) if kind == "job.limit"]
    assert told == [
        f"by its user's last 2 runs; it is raised to {OWN_S:g} s before that is over",
        f"it has not come to its end within {FIRST_S:g} s",
    ]
    live.batch.end(f"ejb-{job}.0", BatchState.COMPLETED, 0)
    await live.poll(1)
    assert live.job(job).state == "completed"


async def test_what_is_over_by_then_is_never_raised(live: LiveWorld) -> None:
    job = await begun(live)
    await live.poll(300)
    live.batch.end(f"ejb-{job}.0", BatchState.COMPLETED, 0)
    await live.poll(1)
    assert live.job(job).state == "completed" and len(limits(live)) == 2


async def test_a_daemon_that_comes_back_raises_it(live: LiveWorld) -> None:
    job = await begun(live)
    live.clock.now += FIRST_S - 30
    await live.restart()
    await live.poll(1)
    assert limits(live)[2:] == [f"limit 100 {OWN_S:g}"] and live.job(job).state == "running"


async def test_without_the_right_nothing_is_lowered_and_no_other_is_tried(live: LiveWorld) -> None:
    live.batch.operator = False
    first = await live.submit(4, walltime_s=OWN_S)
    await live.poll(1)
    await live.poll(5)
    second = await live.submit(4, walltime_s=OWN_S)
    await live.poll(5)
    assert live.batch.of(f"ejb-{first}.0").walltime_s == live.batch.of(f"ejb-{second}.0").walltime_s == OWN_S
    assert len(limits(live)) == 1, "an hour later it is tried again"
    (told,) = [data["reason"] for kind, data in live.events(first) if kind == "job.limit"]
    assert told == "its request stands: Access/permission denied"
    await live.poll(3600)
    assert len(limits(live)) == 2


@pytest.mark.parametrize("again", [True, False])
async def test_a_plan_that_no_daemon_raised(live: LiveWorld, again: bool) -> None:
    """It is killed by it: what may be run again is, with its request."""
    job = await begun(live, rerunnable=again)
    live.clock.now += FIRST_S
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(1)
    await live.poll(1)
    if not again:
        assert live.job(job).state == "timeout"
        return
    assert live.job(job).state == "waiting" and live.batch.of(f"ejb-{job}.1").walltime_s == OWN_S
    await live.poll(5)
    assert len(limits(live)) == 2, "and is not planned with less again"


@pytest.mark.parametrize(
    ("queue", "spec"),
    [
        ({"raised": "off"}, {"rerunnable": True}),
        ({"raised": "rerunnable"}, {}),
        ({"raised": "all"}, {"learned": False}),
        ({"raised": "all"}, {"walltime_s": 850.0}),
    ],
    ids=["off", "not to be run again", "--walltime own", "asks for less"],
)
async def test_the_request_stands(tmp_path: Path, live: LiveWorld, queue: dict[str, Any], spec: dict[str, Any]) -> None:
    other = LiveWorld(tmp_path, live.store, elasticity=Elasticity.OFF, **queue)
    await other.submit(4, **({"walltime_s": OWN_S} | spec))
    await other.poll(1)
    await other.poll(5)
    assert limits(other) == []


async def test_a_job_that_may_be_run_again_is_planned_so_where_only_those_are(tmp_path: Path, live: LiveWorld) -> None:
    other = LiveWorld(tmp_path, live.store, elasticity=Elasticity.OFF, raised="rerunnable")
    await other.submit(4, walltime_s=OWN_S, rerunnable=True)
    await other.poll(1)
    assert len(limits(other)) == 2


def test_what_is_planned() -> None:
    assert planned_s([100.0], 7200.0, 60.0, 5.0) is None, "one run"
    assert planned_s([1000.0, 830.0, 9.0], 7200.0, 60.0, 5.0) == 960.0, "the last two, in whole minutes"
    assert planned_s([10.0, 10.0], 7200.0, 60.0, 5.0) == 180.0, "long enough to be raised in time"
    assert planned_s([10.0, 10.0], 180.0, 60.0, 5.0) is None
    assert planned_s([9000.0, 9000.0], 7200.0, 60.0, 5.0) is None
