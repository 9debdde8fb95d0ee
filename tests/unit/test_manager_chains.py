"""Jobs of the batch system that wait for an elastic job by the number of its J0: what they get is the job's own end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select

from ejbd.batch.base import Identity, WorkerScript
from ejbd.batch.pbs import script as pbs
from ejbd.batch.slurm import script as slurm
from ejbd.core.view import BatchState
from ejbd.errors import BatchError
from ejbd.store.models import Job
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def running_elsewhere(live: LiveWorld) -> str:
    """A job of 16 ranks on a subjob of 4, while its J0 waits."""
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    return job


@pytest.mark.parametrize("script", [partial(slurm.worker_script, kill_wait_s=30.0), pbs.worker_script])
def test_a_subjob_that_nobody_needs_starts_nothing_and_ends_as_its_job(
    tmp_path: Path, script: Callable[[WorkerScript], str]
) -> None:
    """The daemon may be away by then."""
    request = WorkerScript("/nowhere/python", tmp_path / "worker.pyz", tmp_path, tmp_path / "exit")
    request.end_file.write_text("3\n")
    done = subprocess.run(["/bin/sh"], input=script(request), text=True, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert request.exit_file.read_text() == "3\n"


def waits_for(live: LiveWorld, job: str) -> str:
    """Somebody submits `-d afterok:...`; what is answered is J0's number."""
    j0 = live.batch.of(f"ejb-{job}.0").id
    live.batch.awaited.add(j0)
    return j0


async def ends(live: LiveWorld, job: str, code: int = 0) -> None:
    await live.workers[f"{job}.1"].finish_ranks(1, code)
    await live.work()
    await live.act()


def told_to(live: LiveWorld, job: str) -> str:
    """What J0's script finds when it begins."""
    file = live.manager.world.spool.end_file(job, f"{job}.0")
    return file.read_text() if file.exists() else ""


@pytest.mark.sampled(2, first=1)
@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (3, "failed")])
async def test_what_waits_for_a_job_that_never_needed_its_j0_gets_the_jobs_end(
    live: LiveWorld, code: int, state: str
) -> None:
    job = await running_elsewhere(live)
    waits_for(live, job)
    await ends(live, job, code)
    assert live.job(job).state == state
    j0 = live.batch.of(f"ejb-{job}.0")
    assert (j0.state, j0.processors, j0.walltime_s) == (BatchState.PENDING, 1, 60.0), "so small that it begins soon"
    assert told_to(live, job) == f"{code}\n"
    said = [data for kind, data in live.events(job) if kind == "subjob.ends-as-job"]
    assert said == [{"code": code, "reduced": True, "reason": ""}]
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    live.batch.end(f"ejb-{job}.0", BatchState.FAILED if code else BatchState.COMPLETED, code)
    await live.poll(1)
    assert live.subjobs(job)[0].state == ("failed" if code else "completed")
    assert live.job(job).state == state, "what becomes of J0 changes nothing any more"
    assert not [s for s in live.subjobs(job) if s.role == "placeholder" and s.ordinal], "no other J0 is asked for"


async def test_a_j0_that_nobody_waits_for_is_cancelled(live: LiveWorld) -> None:
    job = await running_elsewhere(live)
    await ends(live, job)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED
    assert told_to(live, job) == ""
    assert live.batch.calls.count("waited-for") == 1


async def test_a_job_that_its_user_cancels_takes_its_j0_along(live: LiveWorld) -> None:
    job = await running_elsewhere(live)
    waits_for(live, job)
    await live.manager.cancel(job, "ada")
    await live.work()
    await live.act()
    assert live.job(job).state == "cancelled"
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED
    assert "waited-for" not in live.batch.calls


async def test_the_last_line_of_a_job_may_submit_what_waits_for_it(live: LiveWorld) -> None:
    """No poll comes between the submission and the end."""
    job = await running_elsewhere(live)
    seen = len([call for call in live.batch.calls if call == "observe"])
    waits_for(live, job)
    await ends(live, job)
    assert len([call for call in live.batch.calls if call == "observe"]) == seen
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING and told_to(live, job) == "0\n"


async def test_a_batch_system_that_does_not_answer_is_asked_again_and_no_chain_breaks(live: LiveWorld) -> None:
    job = await running_elsewhere(live)
    waits_for(live, job)
    live.batch.silent = True
    await ends(live, job)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING and told_to(live, job) == ""
    live.batch.silent = False
    await live.poll(10)
    assert live.batch.of(f"ejb-{job}.0").processors == 1 and told_to(live, job) == "0\n"


async def test_a_j0_that_cannot_be_made_smaller_ends_as_the_job_once_its_turn_comes(live: LiveWorld) -> None:
    job = await running_elsewhere(live)
    waits_for(live, job)
    live.batch.refuse_changes = BatchError("the partition gives out no less than 4 nodes", transient=False)
    await ends(live, job)
    j0 = live.batch.of(f"ejb-{job}.0")
    assert (j0.state, j0.processors) == (BatchState.PENDING, 16) and told_to(live, job) == "0\n"
    said = [data for kind, data in live.events(job) if kind == "subjob.ends-as-job"]
    assert [one["reduced"] for one in said] == [False] and "4 nodes" in said[0]["reason"]


class Killed(Exception):
    pass


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", ["waited_for", "reduce"])
@pytest.mark.parametrize("done", [False, True])
async def test_a_daemon_killed_on_the_way_loses_no_chain(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch, where: str, done: bool
) -> None:
    job = await running_elsewhere(live)
    waits_for(live, job)
    call = getattr(live.batch, where)

    async def dies(identity: Identity, *words: object, **more: object) -> None:
        if done:
            await call(identity, *words, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(live.batch, where, dies)
        with pytest.raises(Killed):
            await ends(live, job)
    await live.restart()
    await live.poll(1)
    assert live.batch.of(f"ejb-{job}.0").processors == 1 and told_to(live, job) == "0\n"
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING


async def test_a_j0_that_starts_just_when_its_job_ends_ends_with_the_jobs_code(live: LiveWorld) -> None:
    job = await running_elsewhere(live)
    waits_for(live, job)
    live.batch.start(f"ejb-{job}.0")  # and no look has shown it yet
    await ends(live, job, 3)
    worker = live.workers[f"{job}.0"] = Worker(live, f"{job}.0", 16)
    await worker.register()
    await live.work()
    assert worker.done == [("exit", {"code": 3})]


async def on_j0(live: LiveWorld) -> tuple[str, Worker]:
    live.batch.free = 0
    job = await live.submit()
    worker = await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    return job, worker


@pytest.mark.parametrize("code", [0, 3])
async def test_a_job_that_ran_on_its_j0_has_it_end_as_itself(live: LiveWorld, code: int) -> None:
    job, worker = await on_j0(live)
    await worker.finish_ranks(1, code)
    await live.work()
    await live.act()
    assert live.job(job).exit_code == code
    assert worker.done[-1] == ("exit", {"code": code} if code else {})


@pytest.mark.parametrize("code", [0, 3])
async def test_its_lead_leaves_as_soon_as_the_output_is_whole(live: LiveWorld, code: int) -> None:
    """It is told so along with the word to hand the output in, and no further one is waited for."""
    job, worker = await on_j0(live)
    worker.deaf.add("exit")
    await worker.finish_ranks(1, code)
    await live.work()
    assert dict(worker.done)["unlead"]["exit"] == ({"code": code} if code else {})
    live.batch.end(f"ejb-{job}.0", code=code)
    await live.poll(1)
    assert live.job(job).state == ("failed" if code else "completed") and live.job(job).exit_code == code


async def test_one_whose_output_is_not_whole_is_not_told_to_leave(live: LiveWorld) -> None:
    job, worker = await on_j0(live)
    worker.fail["unlead"] = {"own": True}
    await worker.finish_ranks(1, 0)
    await live.work()
    assert live.job(job).state == "ending" and "exit" not in [kind for kind, _ in worker.done]


async def test_a_job_that_is_cancelled_on_its_j0_does_not_pass_for_one_that_went_well(live: LiveWorld) -> None:
    job, worker = await on_j0(live)
    await live.manager.cancel(job, "ada")
    for _ in range(3):
        await live.work()
        await live.act()
    assert live.job(job).state == "cancelled"
    assert "exit" not in [kind for kind, _ in worker.done], "it would end with 0"
    assert "exit" not in dict(worker.done)["unlead"]
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED


async def without_j0(live: LiveWorld) -> str:
    """A job whose J0 starts when it is nearly done."""
    live.batch.free = 8
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.poll(196)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    assert "decision.keep_subjobs" in live.kinds(job)
    return job


async def test_a_j0_that_starts_and_is_not_needed_waits_on_for_the_jobs_end(live: LiveWorld) -> None:
    """What depends on it may be submitted later, by the last line of the script."""
    job = await without_j0(live)
    j0 = live.batch.of(f"ejb-{job}.0")
    assert j0.state is BatchState.HELD and not j0.nodes, "its processors are free for others"
    await live.poll(1)
    assert live.subjobs(job)[0].state == "pending" and live.job(job).state == "running"
    await live.restart()
    waits_for(live, job)
    await ends(live, job)
    assert live.job(job).state == "completed"
    j0 = live.batch.of(f"ejb-{job}.0")
    assert (j0.state, j0.processors) == (BatchState.PENDING, 1) and told_to(live, job) == "0\n"


async def test_a_j0_that_is_slow_to_go_back_into_the_queue_is_not_taken_for_one_without_workers(
    live: LiveWorld,
) -> None:
    job = await without_j0(live)
    tag = f"ejb-{job}.0"
    held = live.batch.of(tag)
    live.batch.jobs[held.id] = replace(held, state=BatchState.ENDING, start_s=live.clock(), nodes=("n1",))
    await live.poll(live.settings.limits.launch_timeout_s + 1)
    await live.poll(1)
    assert not live.subjobs(job)[0].releasing and live.batch.of(tag).state is BatchState.ENDING
    live.batch.jobs[held.id] = held
    await live.poll(1)
    waits_for(live, job)
    await ends(live, job)
    assert live.job(job).state == "completed" and told_to(live, job) == "0\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("done", [False, True])
async def test_a_daemon_killed_while_it_sets_a_j0_aside_keeps_it_for_the_jobs_end(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    call = live.batch.set_aside

    async def dies(identity: Identity, id: str) -> None:
        if done:
            await call(identity, id)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(live.batch, "set_aside", dies)
        with pytest.raises(Killed):
            await without_j0(live)
    (job,) = live.store.read_sync(lambda session: session.scalars(select(Job.id)).all())
    await live.restart()
    await live.poll(1)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.HELD
    await live.poll(1)  # ... which the daemon sees now
    waits_for(live, job)
    await ends(live, job)
    assert live.job(job).state == "completed" and told_to(live, job) == "0\n"


async def test_a_j0_that_was_set_aside_in_vain_is_cancelled(live: LiveWorld) -> None:
    job = await without_j0(live)
    await live.poll(1)
    await ends(live, job)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED


async def test_who_cancels_a_j0_that_is_set_aside_cancels_the_job(live: LiveWorld) -> None:
    job = await without_j0(live)
    await live.poll(1)
    live.batch.end(f"ejb-{job}.0", BatchState.CANCELLED, None)
    await live.poll(1)
    await live.work()
    assert live.job(job).state in ("ending", "cancelled") and "cancelled at the batch system" in live.job(job).reason


@pytest.mark.parametrize("awaited", [False, True])
async def test_where_nothing_goes_back_into_the_queue_j0_stays_only_for_those_that_wait(
    live: LiveWorld, awaited: bool
) -> None:
    """As on PBS, where that is for operators."""
    live.batch.refuse_changes = BatchError("not for users", transient=False)
    live.batch.free = 8
    job = await live.submit()
    if awaited:
        waits_for(live, job)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.poll(196)
    j0 = await live.begin(f"{job}.0")
    if not awaited:
        await live.poll(21)
        assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED
        return
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.RUNNING
    await ends(live, job, 3)
    await live.work()
    assert live.job(job).state == "failed" and j0.done[-1] == ("exit", {"code": 3})
