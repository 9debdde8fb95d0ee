"""What somebody else does to a J0 that waits, and a batch system that does not schedule: told once, and seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ejbd.core.view import BatchState
from ejbd.store.models import Event
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 0
    return live


def change(live: LiveWorld, job: str, **how: Any) -> None:
    there = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[there.id] = replace(there, **how)


def told(live: LiveWorld, job: str) -> list[tuple[str, dict[str, Any]]]:
    kinds = ("subjob.held", "subjob.let-go", "subjob.altered")
    return [(kind, data) for kind, data in live.events(job) if kind in kinds]


async def test_a_j0_that_somebody_holds_is_told_as_held_until_it_is_let_go(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(5)
    change(live, job, state=BatchState.HELD, reason="Job held by root")
    for _ in range(3):
        await live.poll(5)
    assert told(live, job) == [("subjob.held", {"reason": "Job held by root"})], "once"
    assert "is held at the batch system (Job held by root)" in live.job(job).reason
    await live.restart()
    await live.poll(5)
    assert len(told(live, job)) == 1, "a new daemon knows that it was told"
    change(live, job, state=BatchState.PENDING, reason="")
    await live.poll(5)
    await live.poll(5)
    assert [kind for kind, _ in told(live, job)] == ["subjob.held", "subjob.let-go"]
    assert live.job(job).reason == ""


async def test_a_hold_of_ejbs_own_is_nobody_elses(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(5)
    await live.manager.hold(job, "ada")
    await live.act()
    change(live, job, state=BatchState.HELD)
    await live.poll(5)
    assert live.job(job).held and told(live, job) == []


async def test_a_walltime_that_somebody_alters_is_told(live: LiveWorld) -> None:
    job = await live.submit(walltime_s=600.0)
    await live.poll(5)
    asked_s = live.subjobs(job)[0].walltime_s
    change(live, job, walltime_s=300.0)
    await live.poll(5)
    await live.poll(5)
    assert told(live, job) == [("subjob.altered", {"asked_s": asked_s, "walltime_s": 300.0})]
    assert f"300 s instead of {asked_s:g} s" in live.job(job).reason
    change(live, job, walltime_s=asked_s)
    await live.poll(5)
    assert told(live, job)[1:] == [("subjob.altered", {"asked_s": asked_s, "walltime_s": None})]
    assert live.job(job).reason == ""


async def test_scheduling_that_is_switched_off_is_told_once_and_in_explain(live: LiveWorld) -> None:
    job = await live.submit()
    observe = live.batch.observe
    schedules = False

    async def seen() -> Any:
        return replace(await observe(), schedules=schedules)

    live.batch.observe = seen  # type: ignore[method-assign]
    await live.poll(5)
    await live.poll(5)
    assert "the batch system's scheduling is switched off" in (await live.manager.explain(job))["now"]
    schedules = True
    await live.poll(5)
    await live.poll(5)
    kinds = live.store.read_sync(lambda s: list(s.scalars(select(Event.kind).where(Event.job_id.is_(None)))))
    assert [kind for kind in kinds if kind in ("batch.rests", "batch.schedules")] == ["batch.rests", "batch.schedules"]
    assert "switched off" not in (await live.manager.explain(job))["now"]


async def test_a_j0_whose_comment_somebody_has_changed_is_the_jobs_as_before(live: LiveWorld) -> None:
    """It bears its user's name, and nothing of ours any more: its number and its age tell. Windows are looked for."""
    job = await live.submit()
    await live.poll(5)
    change(live, job, name="mine", tag="")
    live.batch.free = 4
    await live.poll(5)
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob"], "no window was used"
    assert live.subjobs(job)[0].state == "pending"
