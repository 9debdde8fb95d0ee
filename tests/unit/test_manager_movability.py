"""Programs that DMTCP cannot move: how the manager finds out, and that they fare no worse than without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from ejbd.core.view import BatchJobView, BatchState
from ejbd.store.models import Launch, Move
from ejbd.store.store import Store
from tests.fakes.dmtcp_commands import install
from tests.fakes.live import LiveWorld, Worker, some

KILLED = {"exits": {}, "killed": list(range(16))}  # by the worker, since a checkpoint had hung
WHY = "rank 0 has a timer of timerfd_create, which DMTCP does not bring back"


@pytest.fixture
def live(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> LiveWorld:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:/usr/bin:/bin")
    value = LiveWorld(tmp_path, store, first_checkpoint_s=10.0, guard="off")
    value.engines = ["application", "dmtcp", "none"]
    return value


async def running(live: LiveWorld, **spec: Any) -> tuple[str, Worker]:
    """A job of 16 ranks on a subjob of 4."""
    live.batch.free = 4
    job = await live.submit(**{"engine": "dmtcp", "walltime_s": 1000.0, **spec})
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["running"]
    return job, worker


async def sees(worker: Worker, epoch: int = 1, why: str = WHY) -> None:
    nothing = {"done": None, "total": None, "at_s": None}
    await worker.report("sample", epoch=epoch, resident=1000, **nothing, obstacle=why)


async def passes(worker: Worker, epoch: int = 1) -> None:
    nothing = {"done": None, "total": None, "at_s": None}
    await worker.report("sample", epoch=epoch, resident=1000, **nothing, obstacle="", passed=True)


def engines(worker: Worker) -> list[str]:
    return [payload["engine"] for kind, payload in worker.done if kind == "launch"]


async def test_what_is_seen_in_a_program_that_cannot_be_moved_keeps_it_where_it_is(live: LiveWorld) -> None:
    job, worker = await running(live)
    await sees(worker)
    live.batch.free = 12
    await live.poll(60)
    await live.work()
    assert "decision.expand" not in live.kinds(job) and "checkpoint" not in [kind for kind, _ in worker.done]
    explained = await live.manager.explain(job)
    assert explained["movable"] == {"movable": False, "why": WHY}
    assert "cannot be moved" in some(explained["present"])["reason"]
    await worker.finish_ranks(1)
    await live.work()
    assert live.job(job).state == "completed"


async def breaks(live: LiveWorld, job: str, worker: Worker) -> None:
    """The job's first checkpoint ends its ranks, and they begin anew without DMTCP."""
    worker.fail["checkpoint"] = KILLED
    await live.poll(11)
    await live.work(12)
    assert [e.state for e in live.epochs(job)] == ["failed", "running"]


async def test_the_next_job_of_a_program_that_was_tried_is_planned_as_one_without_an_engine(live: LiveWorld) -> None:
    first, worker = await running(live)
    await breaks(live, first, worker)
    await worker.finish_ranks(2)
    await live.work()
    live.batch.end(f"ejb-{first}.1")
    await live.poll(5)
    second, worker = await running(live)
    assert engines(worker) == ["none"]
    told = some((await live.manager.explain(second))["movable"])
    assert told["movable"] is False and told["why"].endswith(f"(job {first})")
    await live.poll(60)
    await live.work()
    assert "checkpoint" not in [kind for kind, _ in worker.done]
    assert live.job(second).engine == "dmtcp", "that is what it asked for"
    _other, worker = await running(live, argv=("./other",))
    assert engines(worker) == ["dmtcp"], "another program is another matter"


async def test_what_was_only_seen_says_nothing_about_the_next_job(live: LiveWorld) -> None:
    """A temporary file that was open for 30 ms kept an application from being moved for a week."""
    first, worker = await running(live)
    await sees(worker)
    await worker.finish_ranks(1)
    await live.work()
    live.batch.end(f"ejb-{first}.1")
    await live.poll(5)
    second, worker = await running(live)
    assert engines(worker) == ["dmtcp"]
    assert some((await live.manager.explain(second))["movable"])["movable"] is None


async def test_what_is_seen_no_more_is_moved_and_where_it_comes_and_goes_after_a_pause(live: LiveWorld) -> None:
    job, worker = await running(live)
    await sees(worker)
    assert live.job(job).not_movable == WHY
    await passes(worker)
    row = live.job(job)
    assert row.not_movable == "" and row.move_not_before_s <= live.clock.now
    assert [data for kind, data in live.events(job) if kind == "job.movable"] == [{"reason": f"no longer: {WHY}"}]
    pauses = []
    for _ in range(3):
        await sees(worker)
        await passes(worker)
        pauses.append(live.job(job).move_not_before_s - live.clock.now)
    assert pauses == sorted(pauses) and 0 < pauses[0] < pauses[-1]
    await live.poll(60)
    await live.work()
    assert "checkpoint" in [kind for kind, _ in worker.done], "its first checkpoint is tried now"


async def test_what_was_tried_and_failed_is_not_undone_by_a_look(live: LiveWorld) -> None:
    job, worker = await running(live)
    await breaks(live, job, worker)
    await passes(worker, epoch=2)
    assert live.job(job).not_movable


async def test_a_job_that_was_begun_without_dmtcp_is_never_asked_for_a_checkpoint(live: LiveWorld) -> None:
    """It was asked every 10 s, and planned as what can be moved, once another job of its application had moved."""
    first, worker = await running(live)
    await breaks(live, first, worker)
    await worker.finish_ranks(2)
    await live.work()
    live.batch.end(f"ejb-{first}.1")
    await live.poll(5)
    second, worker = await running(live, checkpoint=20.0)
    assert engines(worker) == ["none"]

    def moved_elsewhere(session: Session) -> None:
        now, application = live.clock.now, live.job(second).application or ""
        times = {"checkpoint_s": 1.0, "write_s": 1.0, "wait_s": 0.0, "restart_s": 1.0}
        session.add(
            Move(application=application, job_id="other", epoch=1, at_s=now, processors=4, nodes=1, bytes=1, **times)
        )

    await live.store.write(moved_elsewhere)
    await live.restart()  # whatever it remembers of the application is read again
    for _ in range(3):
        await live.poll(30)
        await live.work()
    assert "checkpoint" not in [kind for kind, _ in worker.done] and len(live.epochs(second)) == 1
    assert some((await live.manager.explain(second))["movable"])["why"].startswith("it was begun without DMTCP")


async def test_the_first_checkpoint_is_tried_while_little_is_lost(live: LiveWorld) -> None:
    job, worker = await running(live)
    await live.poll(5)
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["running"]
    await live.poll(6)
    await live.work()
    tried = next(data for kind, data in live.events(job) if kind == "decision.checkpoint")
    assert tried["reason"].startswith("the application's first checkpoint, early")
    assert [(e.state, e.restart_from) for e in live.epochs(job)] == [("stopped", None), ("running", 1)]
    assert some((await live.manager.explain(job))["movable"])["movable"] is True
    await live.poll(60)
    await live.work()
    assert len(live.epochs(job)) == 2, "once"
    _next, worker = await running(live)
    await live.poll(60)
    await live.work()
    assert "checkpoint" not in [kind for kind, _ in worker.done], "once an application"


async def test_a_first_checkpoint_that_kills_the_program_is_the_last_one(live: LiveWorld) -> None:
    """It was tried again and again, each time from the start."""
    job, worker = await running(live)
    worker.fail["checkpoint"] = KILLED
    await live.poll(11)
    await live.work(12)
    assert [e.state for e in live.epochs(job)] == ["failed", "running"]
    assert engines(worker) == ["dmtcp", "none"]
    live.batch.free = 12
    for _ in range(4):
        await live.poll(60)
        await live.work()
    row = live.job(job)
    assert (row.state, row.setbacks, len(live.epochs(job))) == ("running", 1, 2)
    assert some((await live.manager.explain(job))["movable"])["why"].startswith("a checkpoint of it did not complete")
    await worker.finish_ranks(2)
    await live.work()
    assert live.job(job).state == "completed"


async def test_what_cannot_be_moved_off_a_slot_that_is_too_short_waits_for_j0(live: LiveWorld) -> None:
    """It was ended by time-out, although it had not had the time that it asked for."""
    head = ("2", "head", "eve", "batch", BatchState.PENDING, live.batch.total, 3600.0)
    live.batch.others = [BatchJobView(*head, planned_start_s=live.clock.now + 300)]
    job, worker = await running(live)
    await sees(worker)
    await live.poll(5)
    await live.work(12)
    assert live.job(job).state == "running", "it may yet pass"
    await live.poll(6)
    await live.work(12)
    row = live.job(job)
    assert row.state == "waiting" and row.work_s == 0
    live.batch.others = []
    live.batch.start(f"ejb-{job}.0")
    await live.poll()
    j0 = live.workers[f"{job}.0"] = Worker(live, f"{job}.0", 16)
    await j0.register()
    await live.work(12)
    assert engines(j0) == ["none"]
    await j0.finish_ranks(live.epochs(job)[-1].number)
    await live.work()
    assert (live.job(job).state, live.job(job).exit_code) == ("completed", 0)


async def test_a_program_that_does_not_come_back_from_its_first_checkpoint_is_begun_anew_without_one(
    live: LiveWorld,
) -> None:
    """It was restarted from the same checkpoint until the job had failed."""
    job, worker = await running(live)
    worker.fail["launch"] = {"broken": True}
    await live.poll(11)
    for _ in range(6):
        await live.work()
        if engines(worker)[-1] == "none":
            break
        if len(engines(worker)) == 3:
            del worker.fail["launch"]
        await live.poll(1)
    assert engines(worker)[:3] == ["dmtcp"] * 3
    await live.poll(60)
    await live.work()
    assert [(e.state, e.restart_from) for e in live.epochs(job)] == [
        ("stopped", None), ("failed", 1), ("failed", 1), ("running", None),
    ]  # fmt: skip
    assert engines(worker)[-1] == "none"
    await worker.finish_ranks(4)
    await live.work()
    assert live.job(job).state == "completed"


async def test_ranks_that_a_hung_checkpoint_has_killed_begin_anew_also_where_each_goes_on_alone(
    live: LiveWorld,
) -> None:
    """Ranks of a shell's loop: the job had FAILED with 137, a code that none of them had ended with."""
    job, worker = await running(live)

    def alone(session: Session) -> None:
        some(session.get(Launch, (job, 0))).together = False

    await live.store.write(alone)
    await breaks(live, job, worker)
    assert engines(worker) == ["dmtcp", "none"] and live.epochs(job)[0].exits == {}
    await worker.finish_ranks(2)
    await live.work()
    assert (live.job(job).state, live.job(job).exit_code) == ("completed", 0)


async def test_a_rank_that_fails_by_itself_while_it_is_checkpointed_has_failed(live: LiveWorld) -> None:
    job, worker = await running(live)
    worker.fail["checkpoint"] = {"exits": {"0": 3}, "killed": list(range(1, 16))}
    await live.poll(31)
    await live.work(12)
    row = live.job(job)
    assert (row.state, row.exit_code, len(live.epochs(job))) == ("failed", 3, 1)
    assert not row.not_movable


@pytest.mark.parametrize(("code", "again"), [(3, False), (143, False), (139, True), (99, True)])
async def test_an_exit_code_soon_after_the_first_move_is_the_programs_own(
    live: LiveWorld, code: int, again: bool
) -> None:
    """It was run three times over, and taken for what cannot be moved for a day. What a broken image ends with is no
    code of the program's."""
    job, worker = await running(live)
    await live.poll(11)
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["stopped", "running"]
    live.clock.now += 6
    await worker.report("rank-exit", epoch=2, rank=0, code=code)
    await live.work(12)
    assert len(live.epochs(job)) == (3 if again else 2)
    if not again:
        row = live.job(job)
        assert (row.state, row.exit_code) == ("failed", code)
        assert f"rank 0 ended with code {code}, 6 s after it was moved" in live.epochs(job)[-1].reason
        assert "move.failed" not in live.kinds(job)


async def test_a_program_that_was_moved_before_may_fail_at_it_once(live: LiveWorld) -> None:
    job, worker = await running(live)
    await live.poll(11)
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["stopped", "running"]
    for count in (1, 2):
        worker.fail["checkpoint"] = KILLED
        live.batch.free = 4 * count
        await live.poll(60)
        new = f"{job}.{count + 1}"
        live.batch.start(f"ejb-{new}")
        await live.poll()
        live.workers[new] = Worker(live, new, live.subjobs(job)[count + 1].processors)
        await live.workers[new].register()
        await live.work(12)
        del worker.fail["checkpoint"]
        known = some((await live.manager.explain(job))["movable"])["movable"]
        assert known is (count == 1)


async def test_images_of_few_generations_are_kept_and_none_of_a_job_that_ended_well(
    live: LiveWorld,
) -> None:
    """What a checkpoint that broke had written stayed for as long as the job was known, and so did the last ones."""
    job, worker = await running(live, checkpoint=30.0)

    def kept() -> list[int]:
        found = live.manager.world.spool.job_dir(job).glob("epochs/*/checkpoint/image")
        return sorted(int(path.parent.parent.name) for path in found)

    for count in range(1, 5):
        folder = live.manager.world.spool.checkpoint_dir(job, live.epochs(job)[-1].number)
        (folder / "image").touch()
        if count == 3:
            worker.fail["checkpoint"] = KILLED
        await live.poll(40)
        await live.work(12)
        worker.fail.clear()
        assert live.epochs(job)[-1].state == "running"
        assert len(kept()) <= 3, "the last, the one before, and what the ranks write to now"
    await live.poll(15)
    last = live.epochs(job)[-1]
    assert (len(live.epochs(job)), last.restart_from, kept()) == (5, 4, [2, 4])
    await worker.finish_ranks(last.number)
    await live.work()
    assert live.job(job).state == "completed" and kept() == []
