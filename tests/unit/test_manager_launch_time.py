"""How long a restart may take: it follows what the checkpoint took, and grows where it was too short."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from ejbd.store.models import Operation
from ejbd.store.store import Store
from tests.fakes.dmtcp_commands import install
from tests.fakes.live import LiveWorld, Worker


@pytest.fixture
def live(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:/usr/bin:/bin")
    return LiveWorld(tmp_path, store)


async def moved(live: LiveWorld, checkpoint_s: float, *, deaf: bool = False) -> tuple[str, Worker]:
    """A job whose first checkpoint took so long, and whose ranks are being restarted from it."""
    job = await live.submit(engine="dmtcp", walltime_s=100_000.0, checkpoint=600.0)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.work()
    live.manager.world.spool.checkpoint_dir(job, 1).mkdir(parents=True, exist_ok=True)
    worker.takes["checkpoint"] = checkpoint_s
    await live.poll(601)
    if deaf:
        worker.deaf.add("launch")
    await live.work()
    return job, worker


def told_s(worker: Worker) -> list[float]:
    return [payload["timeout_s"] for kind, payload in worker.done if kind == "launch"]


async def test_a_restart_has_several_times_what_its_checkpoint_took(live: LiveWorld) -> None:
    """It was 54 s whatever was to be read: larger restarts lost both checkpoints, and began anew again and again."""
    _job, worker = await moved(live, 110.0)
    first_s, restart_s = told_s(worker)
    assert first_s == pytest.approx(54.0) and restart_s == pytest.approx(0.9 * 4 * 110.0)


async def test_a_small_restart_has_what_is_configured(live: LiveWorld) -> None:
    _job, worker = await moved(live, 2.0)
    assert told_s(worker) == pytest.approx([54.0, 54.0])


async def test_the_daemon_waits_as_long_and_the_next_restart_has_twice_the_time(live: LiveWorld) -> None:
    job, _worker = await moved(live, 110.0, deaf=True)
    await live.poll(400)
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["stopped", "launching"], "440 s are not over"
    await live.poll(50)
    await live.work()
    epochs = live.epochs(job)
    assert epochs[1].reason == "not up within 440 s" and epochs[2].restart_from == 1
    query = select(Operation.payload).where(Operation.job_id == job, Operation.kind == "launch", Operation.epoch == 3)
    payload = live.store.read_sync(lambda session: session.scalars(query).one())
    assert payload["timeout_s"] == pytest.approx(2 * 0.9 * 4 * 110.0)


async def late_on_the_second_node(live: LiveWorld, late_s: float) -> tuple[str, Worker, Worker]:
    """J0 with a worker on each of two nodes, the second of which says `late_s` after the launch that its ranks run."""
    job = await live.submit(engine="application", walltime_s=1000.0)
    subjob = f"{job}.0"
    await live.poll()
    live.batch.starts_on = ("n1", "n2")
    live.batch.start(f"ejb-{subjob}")
    await live.poll()
    first, second = Worker(live, subjob, 8), Worker(live, subjob, 8, node="n2")
    for worker in (first, second):
        await worker.register()
    await live.poll(1)
    await come_up(live, first, second, late_s)
    return job, first, second


async def come_up(live: LiveWorld, first: Worker, second: Worker, late_s: float) -> None:
    for _ in range(3):
        await first.work()
    live.clock.now += late_s
    for _ in range(3):
        await second.work()


@pytest.mark.parametrize(("late_s", "states"), [(45.0, ["failed", "running"]), (5.0, ["failed"])])
async def test_ranks_that_waited_too_long_for_others_are_launched_once_more(
    live: LiveWorld, late_s: float, states: list[str]
) -> None:
    """The daemon was away in the middle of a launch: the ranks of one node gave those of the other up."""
    job, first, second = await late_on_the_second_node(live, late_s)
    await first.report("rank-exit", epoch=1, rank=first.ranks[1][0], code=1)
    for worker in (first, second):
        await worker.work()
    await live.poll(1)
    assert (live.epochs(job)[0].code, live.job(job).setbacks) == (
        ("came_apart", 1) if late_s > 30 else ("rank_failed", 0)
    )
    assert len(live.epochs(job)) == len(states)


async def test_what_fails_again_after_a_late_launch_has_failed(live: LiveWorld) -> None:
    job, first, second = await late_on_the_second_node(live, 45.0)
    for epoch in (1, 2):
        await first.report("rank-exit", epoch=epoch, rank=first.ranks[epoch][0], code=3)
        for worker in (first, second):
            await worker.work()
        await live.poll(1)
        await come_up(live, first, second, 45.0)
    assert [e.code for e in live.epochs(job)] == ["came_apart", "rank_failed"]
    assert live.job(job).exit_code == 3
