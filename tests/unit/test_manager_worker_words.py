"""What a job's own code says in its workers' name: how much of it is kept, and what is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.manager.facts.past.history import measured_speed
from ejbd.manager.rules.requests import reportbudget
from ejbd.store.models import Event, Move, Operation, Speed, Worker
from ejbd.store.store import Store
from tests.fakes.live import Worker as FakeWorker
from tests.fakes.many import ManyWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> ManyWorld:
    return ManyWorld(tmp_path, store)


async def running_of(live: ManyWorld, user: str) -> FakeWorker:
    job = await live.submit(user=user)
    await live.poll(1)
    return await live.begin(f"{job}.1")


def kept(live: ManyWorld, worker: FakeWorker) -> tuple[int, int]:
    """Events of a job, and bytes of their text."""
    job = worker.subjob.partition(".")[0]
    said = [str(data) for _, data in live.events(job)]
    return len(said), sum(map(len, said))


async def test_what_workers_report_beyond_a_budget_is_dropped_and_counted(live: ManyWorld) -> None:
    worker = await running_of(live, "mallory")
    floods: dict[str, dict[str, Any]] = {
        "log": {"level": "info", "message": "x" * 60_000},
        "launch-refused": {"run": 1, "name": "srun", "line": 1, "reason": "y" * 60_000},
        "coordinator-lost": {"epoch": 1, "reason": "z" * 60_000},
        "stuck": {"epoch": 1, "rank": 0, "seconds": 1.0},
    }
    for kind, fields in floods.items():
        for _ in range(1000):
            worker.keep(kind, **fields)
        await worker.send()
    rows, size = kept(live, worker)
    assert rows < 2100 and size < reportbudget.SUBJOB_BYTES * 1.1
    told = [d["message"] for kind, d in live.events(worker.subjob.partition(".")[0]) if kind == "worker.log"]
    assert [message for message in told if message.endswith(" so far: 1000")], told[-1][:200]
    bob = await running_of(live, "bob")
    await bob.report("log", level="info", message="hello")
    assert "hello" in {data.get("message") for _, data in live.events(bob.subjob.partition(".")[0])}
    live.clock.now += 36_000.0  # what it may leave grows with the time that it runs
    await worker.report("log", level="info", message="later")
    assert told != [d["message"] for kind, d in live.events(worker.subjob.partition(".")[0]) if kind == "worker.log"]


async def test_a_job_has_a_bound_over_all_its_subjobs(live: ManyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reportbudget, "JOB_BYTES", 3000)
    worker = await running_of(live, "mallory")
    before, _ = kept(live, worker)
    for _ in range(9):
        await worker.report("log", level="info", message="x")
    assert kept(live, worker)[0] == before + 3, "two, and the word that others are dropped"


async def test_workers_that_begin_again_and_again_leave_no_rows_without_bound(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reportbudget, "SUBJOB_BYTES", 5000)
    worker = await running_of(live, "mallory")
    with pytest.raises(EjbError) as refused:
        for n in range(20):
            await worker.register(boot=f"b{n}")
    assert refused.value.code is Code.TOO_MANY
    rows = live.store.read_sync(lambda s: s.scalar(select(func.count()).select_from(Worker)))
    assert rows is not None and rows <= 6


async def test_launches_that_are_refused_again_and_again_end_their_job(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reportbudget, "SUBJOB_BYTES", 20_000)
    worker = await running_of(live, "mallory")
    for ordinal in range(2, 100):
        worker.keep("launch", ordinal=ordinal, size=1, file="/etc/passwd")
    await worker.send()
    job = worker.subjob.partition(".")[0]
    asked = live.store.read_sync(lambda s: s.scalar(select(func.count()).where(Operation.kind == "launch-ended")))
    assert asked is not None and asked <= 20
    assert "too many of its launches were refused" in str(live.job(job).reason)


async def test_progress_that_goes_back_and_forth_leaves_few_rows(live: ManyWorld) -> None:
    worker = await running_of(live, "mallory")
    for n in range(600):
        at_s = 100.0 * n
        worker.keep("sample", epoch=1, resident=1, done=float(n % 3), total=None, at_s=at_s)
    await worker.send()
    rows = live.store.read_sync(lambda s: s.scalar(select(func.count()).select_from(Speed)))
    assert rows is not None and 0 < rows <= 20


async def test_an_answer_beyond_the_bound_is_taken_for_a_failure(live: ManyWorld) -> None:
    job = await live.submit(user="mallory")
    await live.poll(1)
    worker = await live.arrive(f"{job}.1")
    found = await live.manager.worker_operations(worker.subjob, worker.id, 0, 0)
    await worker.report("result", seq=found[0]["seq"], ok=True, error="", data={"x": "y" * 1_000_000})
    operation = live.store.read_sync(lambda s: s.get(Operation, found[0]["seq"]))
    assert operation is not None and operation.state == "failed" and operation.result == {}
    assert live.store.read_sync(lambda s: s.scalar(select(func.max(func.length(Event.data))))) < 100_000


# -- what is believed --------------------------------------------------------------------------------------------------


async def test_a_worker_is_believed_for_the_nodes_of_its_own_batch_job(live: ManyWorld) -> None:
    worker = await running_of(live, "mallory")
    for n in range(20):
        with pytest.raises(EjbError, match=f"has not got node evil{n}") as refused:
            await FakeWorker(live, worker.subjob, 4, node=f"evil{n}").register()
        assert refused.value.code is Code.CONFLICT and refused.value.transient, "an honest one tries again"
    with pytest.raises(EjbError, match="or has a worker there"):
        await FakeWorker(live, worker.subjob, 4, node="n1.another-name").register()
    job = await live.submit(user="bob")
    live.batch.starts_on = ("n1.cluster.example",)
    assert (await live.begin(f"{job}.0")).id and live.job(job).state == "running", "a domain is no other node"


async def test_workers_that_come_before_a_poll_are_as_many_as_it_has_processors_and_then_on_its_nodes(
    live: ManyWorld,
) -> None:
    job = await live.submit(user="mallory")
    await live.poll(1)
    subjob = live.subjobs(job)[1]
    for n in range(subjob.processors):
        await FakeWorker(live, subjob.id, 1, node=f"evil{n}").register()
    with pytest.raises(EjbError, match="has as many workers"):
        await FakeWorker(live, subjob.id, 1, node="another").register()
    assert live.subjobs(job)[1].state == "running", "it has come, as it seems"
    live.batch.start(f"ejb-{subjob.id}")
    await live.poll(10)
    lost = [data["reason"] for kind, data in live.events(job) if kind == "worker.lost"]
    assert len(lost) == subjob.processors and "has not got its node" in lost[0]
    honest = FakeWorker(live, subjob.id, subjob.processors)
    await honest.register()
    assert live.subjobs(job)[1].nodes == ["n1"]


async def test_what_a_worker_says_of_engines_counts_for_its_own_users_jobs(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ejbd.manager.facts.placing.checkpointing._on_path", lambda path, tick: True)
    live.engines = ["none"]  # mallory's node "has no DMTCP"
    await running_of(live, "mallory")
    with pytest.raises(EjbError, match="node n1 has no usable DMTCP"):
        await live.submit(user="mallory", engine="dmtcp")
    assert live.job(await live.submit(user="bob", engine="dmtcp")).engine == "dmtcp"
    await live.restart()
    with pytest.raises(EjbError, match="node n1 has no usable DMTCP"):
        await live.submit(user="mallory", engine="dmtcp")
    assert live.job(await live.submit(user="bob", engine="dmtcp")).engine == "dmtcp"


async def test_what_an_administrators_worker_says_of_engines_counts_for_users_without_workers(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's own PATH has no DMTCP, and the nodes have: an administrator's job shows that, another user's not."""
    monkeypatch.setattr("ejbd.manager.facts.placing.checkpointing._on_path", lambda path, tick: False)
    live.engines = ["none", "dmtcp"]
    await running_of(live, "mallory")
    with pytest.raises(EjbError, match="not on PATH"):
        await live.submit(user="bob", engine="dmtcp")
    live.manager.settings.admins = ["mallory"]
    assert live.job(await live.submit(user="bob", engine="dmtcp")).engine == "dmtcp"


async def test_how_fast_a_users_checkpoints_were_written_counts_for_that_users_jobs(live: ManyWorld) -> None:
    def add(session: Session) -> float | None:
        more = {"epoch": 1, "at_s": 1.0, "processors": 1, "nodes": 1, "checkpoint_s": 1.0, "wait_s": 0.0}
        session.add(Move(application="mallory:4:none:heat", job_id="x", bytes=1 << 40, write_s=1.0, **more))
        session.flush()
        return measured_speed(session, "bob")

    assert await live.store.write(add) is None
    assert live.store.read_sync(lambda s: measured_speed(s, "mallory")) == 1 << 40
