"""Jobs that are longer than their queue's limit, in the fake world: chains of place holders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchState
from ejbd.errors import EjbError
from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

LIMIT_S = 300.0
pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@pytest.fixture
async def live(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    world = LiveWorld(tmp_path, store)
    world.batch.free = 0  # J0 is what there is
    observe = world.batch.observe

    async def limited() -> Any:
        view = await observe()
        return replace(view, queues=tuple(replace(queue, max_walltime_s=LIMIT_S) for queue in view.queues))

    monkeypatch.setattr(world.batch, "observe", limited)
    await world.poll(1)
    return world


async def runs_for(live: LiveWorld, seconds: float, step_s: float = 10.0) -> None:
    for _ in range(int(seconds // step_s)):
        await live.poll(step_s)
        await live.work()


async def begun(live: LiveWorld, subjob: str) -> None:
    await live.begin(subjob)
    await live.work()
    await live.poll(1)


BY_PROFILE: dict[str, Any] = {"engine": "profile", "argv": ("./ejb-own-heat",)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("own", [{}, BY_PROFILE], ids=["application", "profile"])
async def test_each_place_holder_is_left_in_time_and_the_next_goes_on(live: LiveWorld, own: dict[str, Any]) -> None:
    job = await live.submit(4, 700.0, elastic=True, **own)
    assert live.batch.of(f"ejb-{job}.0").walltime_s == LIMIT_S and live.job(job).walltime_s == 700.0
    done_s = 0.0
    for number in range(3):
        subjob = f"{job}.{number}"
        asked_s = live.batch.of(f"ejb-{subjob}").walltime_s or 0.0
        assert asked_s == LIMIT_S if number < 2 else 700.0 - done_s <= asked_s <= LIMIT_S
        if number == 2:
            left_s = 700.0 - done_s + 20.0
            assert asked_s <= left_s and asked_s == live.subjobs(job)[2].walltime_s, "no longer than what is left"
        await begun(live, subjob)
        assert live.job(job).state == "running"
        assert live.epochs(job)[-1].restart_from == (None if not number else live.epochs(job)[-2].number)
        await live.poll(5)
        ahead = live.subjobs(job)[number + 1 :]
        if number == 2:
            assert ahead == [], "what is left fits into this one"
            break
        assert [(one.role, one.state) for one in ahead] == [("standby", "pending")], "the next one keeps a place"
        assert live.batch.of(ahead[0].tag).state is BatchState.PENDING
        await runs_for(live, LIMIT_S - 5)
        row = live.job(job)
        assert (row.state, row.overruns, row.setbacks) == ("waiting", 0, 0)
        assert row.work_s > done_s + LIMIT_S / 2
        done_s = row.work_s
        if not live.batch.of(f"ejb-{subjob}").state.ended:
            await runs_for(live, 30)
    done = [(kind, payload) for worker in live.workers.values() for kind, payload in worker.done]
    launches = [payload for kind, payload in done if kind == "launch"]
    assert len(launches) == 3 and {one["engine"] for one in launches} == {own.get("engine", "application")}
    stops = [payload["epoch"] for kind, payload in done if kind == "checkpoint"]
    assert stops[-1] == 2 and 1 in stops, "each end of a walltime stops it, before the batch system would"
    await live.poll(20)
    await live.workers[f"{job}.2"].finish_ranks(live.epochs(job)[-1].number)
    for _ in range(3):
        await live.work()
        await live.poll(12)
    assert live.job(job).state == "completed" and live.batch.live() == []


async def test_one_that_its_limit_ended_unsaved_goes_on_in_the_next_and_not_for_ever(live: LiveWorld) -> None:
    """Its walltime ends it twice, before anything was saved; with no setback left it ends by time-out."""
    live.settings.limits.max_setbacks = 2
    job = await live.submit(4, 700.0, elastic=True, rerunnable=True)
    for number in range(3):
        subjob = f"{job}.{number}"
        await begun(live, subjob)
        live.workers[subjob].fail["checkpoint"] = {}
        await runs_for(live, LIMIT_S - 20, 20.0)
        live.clock.now += 25
        live.batch.end(f"ejb-{subjob}", BatchState.TIMEOUT, 0)
        for _ in range(3):
            await live.poll(5)
        if number < 2:
            assert (live.job(job).state, live.job(job).setbacks) == ("waiting", number + 1), live.job(job).reason
    assert live.job(job).state == "timeout"


async def test_what_no_engine_moves_is_refused_in_one_sentence(live: LiveWorld) -> None:
    with pytest.raises(EjbError, match=r"700 s are more than queue .* allows \(300 s\)") as refused:
        await live.submit(4, 700.0, elastic=True, engine="none")
    assert "what an engine moves may be longer" in str(refused.value.hint)
    script: dict[str, Any] = {"kind": JobKind.SCRIPT, "script": "#!/bin/bash\nsrun ./heat\n", "argv": ()}
    with pytest.raises(EjbError, match="are more than queue"):
        await live.submit(4, 700.0, elastic=True, **script)
    plan = await live.plan(processes=4, walltime_s=700.0, elastic=True)
    assert "it goes on in about" in plan["why"]


async def test_a_daemon_that_is_killed_between_two_place_holders_asks_for_one(live: LiveWorld) -> None:
    job = await live.submit(4, 700.0, elastic=True)
    await begun(live, f"{job}.0")
    await runs_for(live, LIMIT_S - 50)
    for _ in range(12):
        await live.poll(5)
        await live.restart()
        await live.poll(0)
        await live.work()
        if live.job(job).state == "waiting":
            break
    assert live.job(job).work_s > LIMIT_S / 2
    await live.restart()
    await live.act()
    await runs_for(live, 30)
    waiting = [one for one in live.subjobs(job) if one.state in ("planned", "pending")]
    assert len(waiting) == 1 and len(live.subjobs(job)) == 2
