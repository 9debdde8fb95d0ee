"""Nodes that elastic jobs leave for an operator, by a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.batch.base import SubmitRequest
from ejbd.core.view import BatchState
from ejbd.errors import Code, EjbError
from ejbd.manager.facts.drains import ToldDrain
from ejbd.store.models import Event
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    """Eight nodes of 4 processors, of which n1 is idle."""
    live = LiveWorld(tmp_path, store)
    live.settings.batch = "slurm"  # whose submissions can be kept off nodes
    live.batch.node_processors = 4
    return live


BY_PROFILE: dict[str, Any] = {"engine": "auto", "argv": ("./ejb-own-heat",)}
BOTH = pytest.mark.parametrize("spec", [{}, BY_PROFILE], ids=["as it is", "by a profile"])


async def running(live: LiveWorld, **spec: Any) -> str:
    """A job of 16 ranks on the 4 processors of n1."""
    job = await live.submit(walltime_s=1000.0, **spec)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    await live.poll(20)
    assert live.subjobs(job)[1].nodes == ["n1"]
    return job


async def drain(live: LiveWorld, nodes: str = "n1", seconds: float = 100) -> ToldDrain:
    (found,) = await live.manager.drain(nodes, live.clock.now + seconds, "root")
    return found


def asked_of(live: LiveWorld, tag: str) -> SubmitRequest:
    return next(request for request in live.batch.requests.values() if request.tag == tag)


@pytest.mark.sampled(2)
@BOTH
async def test_a_job_is_off_the_nodes_in_time_and_its_work_is_kept(live: LiveWorld, spec: dict[str, Any]) -> None:
    job = await running(live, **spec)
    by_s = live.clock.now + 100
    told = await drain(live)
    assert (told["nodes"], told["elastic"], told["stay"], told["others"]) == ("n1", [job], [], [])
    assert told["elastic_free_s"] == told["free_s"] == by_s
    await live.poll(5)
    assert live.job(job).state == "running", "there is time yet"
    while live.job(job).state == "running" and live.clock.now < by_s:
        await live.poll(5)
        await live.work()
    live.batch.end(f"ejb-{job}.1")
    await live.poll(5)
    assert live.clock.now < by_s
    found = live.job(job)
    assert (found.state, found.setbacks, found.overruns) == ("waiting", 0, 0) and found.work_s > 0
    (told,) = await live.manager.drains()
    assert (told["elastic"], told["free_s"]) == ([], live.clock.now)
    assert told["elastic_free_s"] is not None and told["elastic_free_s"] <= by_s
    kinds = [event.kind for event in live.store.read_sync(_site_events)]
    assert [kind for kind in kinds if kind.startswith("drain.")] == ["drain.asked", "drain.free"]


async def test_windows_do_not_offer_the_nodes_and_submissions_stay_off_them(live: LiveWorld) -> None:
    live.batch.free = 8  # n1 and n2
    await live.poll(1)
    await drain(live)
    (window,) = await live.manager.windows(None)
    assert [slot["processors"] for slot in window["slots"]] == [4]
    assert window["closed"] == [{"what": "drain", "name": "by root", "nodes": "n1", "until_s": None}]
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    j0, subjob = live.subjobs(job)
    assert subjob.processors == 4
    assert [tuple(asked_of(live, f"ejb-{s.id}").exclude) for s in (j0, subjob)] == [("n1",), ("n1",)]
    wide = await live.submit(processes=30, walltime_s=1000.0)
    assert tuple(asked_of(live, f"ejb-{wide}.0").exclude) == (), "a J0 that needs them keeps its place"


async def test_in_front_of_pbs_a_subjob_stays_off_them_and_j0_keeps_its_place(live: LiveWorld) -> None:
    """PBS can only be told which nodes a job is to have, which would keep a J0 from beginning on any others."""
    live.settings.batch = "pbs"
    live.batch.free = 8  # n1 and n2
    await live.poll(1)
    await drain(live)
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    assert [tuple(asked_of(live, f"ejb-{s.id}").exclude) for s in live.subjobs(job)] == [(), ("n1",)]


async def test_it_outlives_the_daemon_and_is_taken_back(live: LiveWorld) -> None:
    job = await running(live)
    await drain(live, "n[1-2]")
    await live.restart()
    await live.poll(5)
    (told,) = await live.manager.drains()
    assert told["nodes"] == "n[1-2]" and live.subjobs(job)[1].leave_by_s is not None
    (told,) = await live.manager.cancel_drain("n1", "root")
    assert told["nodes"] == "n2" and live.subjobs(job)[1].leave_by_s is None
    assert await live.manager.cancel_drain("n[1-8]", "root") == []
    with pytest.raises(EjbError, match="none of n1 is drained") as caught:
        await live.manager.cancel_drain("n1", "root")
    assert caught.value.code is Code.NOT_FOUND
    for _ in range(10):
        await live.poll(15)
    assert live.job(job).state == "running"


async def test_what_cannot_be_moved_stays_and_is_told(live: LiveWorld) -> None:
    job = await live.submit(engine="none", walltime_s=1000.0)
    await live.poll(1)
    live.batch.free = 0
    await live.begin(f"{job}.0")
    await live.work()
    told = await drain(live)
    assert (told["elastic"], told["stay"]) == ([job], [job])
    assert told["free_s"] == live.subjobs(job)[0].end_s
    for _ in range(10):
        await live.poll(15)
    assert live.job(job).state == "running"


async def test_what_the_batch_system_starts_there_later_is_its_own_affair(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    await drain(live, seconds=50)
    live.clock.now += 10
    await live.begin(f"{job}.0")
    await live.work()
    for _ in range(20):
        await live.poll(5)
    assert live.job(job).state == "running", "nobody is sent round in circles"
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.RUNNING


@pytest.mark.parametrize(
    ("nodes", "seconds", "code"),
    [("n[1-", 100, Code.INVALID), ("n9", 100, Code.NOT_FOUND), ("n1", -1, Code.INVALID), ("  ", 100, Code.INVALID)],
)
async def test_what_cannot_be_right_is_refused(live: LiveWorld, nodes: str, seconds: float, code: Code) -> None:
    await live.poll(1)
    with pytest.raises(EjbError) as caught:
        await drain(live, nodes, seconds)
    assert caught.value.code is code and caught.value.hint
    assert await live.manager.drains() == []


async def test_a_batch_system_that_cannot_exclude_nodes_says_so(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    await live.poll(1)
    with pytest.raises(EjbError) as caught:
        await drain(live)
    assert caught.value.code is Code.UNSUPPORTED


def _site_events(session: Session) -> list[Event]:
    return list(session.scalars(select(Event).where(Event.job_id.is_(None)).order_by(Event.id)))
