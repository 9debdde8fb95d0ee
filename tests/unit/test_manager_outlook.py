"""What people are shown of what is to come: of jobs as the manager has them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_improvements import started, until_shadow


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Callable[..., LiveWorld]:
    return lambda **queue: LiveWorld(tmp_path, store, **queue)


Told = list[tuple[str, float, float, int, int, bool]]


async def planned(live: LiveWorld, job: str) -> Told:
    """Times from now on."""
    found = await live.manager.planned(job)
    now = live.clock.now
    assert all(one.end_s == other.start_s for one, other in itertools.pairwise(found))
    return [(i.kind.value, i.start_s - now, i.end_s - now, i.processors, i.degree, i.on_placeholder) for i in found]


def expect_j0(live: LiveWorld, job: str, in_s: float) -> None:
    j0 = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[j0.id] = replace(j0, planned_start_s=live.clock.now + in_s)


async def test_a_job_that_waits_is_expected_on_its_place_holder(world: Callable[..., LiveWorld]) -> None:
    live = world()
    live.batch.free = 0
    job = await live.submit()
    await live.poll(1)
    assert await planned(live, job) == [("wait", 0, math.inf, 0, 0, False)]
    expect_j0(live, job, 400)
    await live.poll(0)
    assert await planned(live, job) == [("wait", 0, 400, 0, 0, False), ("run", 400, 500, 16, 1, True)]
    told = await live.manager.explain(job)
    assert [(p["kind"], p["on_placeholder"]) for p in told["planned"]] == [("wait", False), ("run", True)]
    await live.manager.hold(job, "ada")
    assert await planned(live, job) == []


async def test_subjobs_that_were_asked_for_are_in_the_plan(world: Callable[..., LiveWorld]) -> None:
    live = world()
    until_shadow(live, 8, 60)
    job = await live.submit()
    await live.poll(1)
    assert live.subjobs(job)[1].state == "pending"
    found = await planned(live, job)
    assert found[0][0] == "run" and found[0][3:] == (8, 2, False)
    assert found[-1][0] == "suspended"


async def test_a_suspension_that_is_planned_lasts_until_j0_is_expected(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await started(live)
    found = await planned(live, job)
    assert [(kind, processors) for kind, _, _, processors, *_ in found] == [("run", 8), ("move", 8), ("suspended", 0)]
    assert found[-1][2] == math.inf
    expect_j0(live, job, 300)
    await live.poll(1)
    found = await planned(live, job)
    assert [(kind, p, on_j0) for kind, _, _, p, _, on_j0 in found[2:]] == [
        ("suspended", 0, False),
        ("move", 16, True),
        ("run", 16, True),
    ]
    assert found[2][2] == 299  # when J0 starts

    await live.poll(46)
    await live.work()
    live.batch.end(f"ejb-{job}.1")
    await live.poll(1)
    assert live.job(job).state == "waiting"
    found = await planned(live, job)
    assert [kind for kind, *_ in found] == ["wait", "move", "run"]
    kept_s = live.job(job).work_s
    assert kept_s > 10 and math.isclose(found[-1][2] - found[-1][1], 100 - kept_s)


async def test_nothing_is_planned_of_a_job_that_is_over_or_not_there(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await live.submit()
    await live.poll(1)
    await live.manager.cancel(job, "ada")
    await live.act()
    await live.poll(1)
    assert await planned(live, job) == []
    assert await planned(live, "nobody") == []


async def test_a_job_that_is_passed_through_runs_to_its_limit(world: Callable[..., LiveWorld]) -> None:
    live = world(elasticity="off")
    job = await live.submit(elastic=False)
    await live.poll(1)
    expect_j0(live, job, 50)
    await live.poll(0)
    limit_s = live.subjobs(job)[0].walltime_s
    assert await planned(live, job) == [("wait", 0, 50, 0, 0, False), ("run", 50, 50 + limit_s, 16, 1, False)]
    live.batch.start(f"ejb-{job}.0")
    await live.poll(10)
    ((kind, begin, end, processors, degree, on_j0),) = await planned(live, job)
    assert (kind, begin, processors, degree, on_j0) == ("run", 0, 16, 1, False)
    assert 0 < end <= limit_s
