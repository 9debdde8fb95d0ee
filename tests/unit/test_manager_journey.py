"""The manager's decisions and state machines, with a batch system in memory and workers that obey."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from ejbd.batch.base import Identity, SubmitRequest
from ejbd.core.view import BatchState
from ejbd.errors import EjbError
from ejbd.manager.jobspec import JobKind
from ejbd.store.models import Job
from ejbd.store.models import Worker as WorkerRow
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def running_on_first(live: LiveWorld) -> str:
    """A 16-rank job over-subscribed 4 times on a subjob of 4."""
    job = await live.submit()
    assert live.job(job).state == "waiting"
    await live.poll(1)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob"]
    await live.begin(f"{job}.1")
    await live.work()
    return job


async def test_starts_over_subscribed_on_what_is_free(live: LiveWorld) -> None:
    job = await running_on_first(live)
    row = live.job(job)
    assert row.state == "running" and row.work_rate == 0.25 and row.members == [f"{job}.1"]
    epoch = live.epochs(job)[0]
    assert epoch.state == "running" and epoch.processors == 4 and len(epoch.placement) == 16
    assert [d["decision"]["kind"] for k, d in live.events(job) if k == "decision.start"] == ["start"]


async def test_grows_and_ends(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.poll(10)
    second = live.subjobs(job)[2]
    assert second.role == "subjob" and second.processors == 4
    await live.begin(second.id)
    await live.work()
    await live.poll(1)
    await live.work()
    epochs = live.epochs(job)
    assert [e.state for e in epochs] == ["stopped", "running"]
    assert epochs[1].restart_from == 1 and epochs[1].processors == 8
    assert live.job(job).work_rate == 0.5
    for worker in live.workers.values():
        await worker.finish_ranks(2)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed" and live.job(job).exit_code == 0
    assert "exit" in [kind for w in live.workers.values() for kind, _ in w.done]
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED


async def test_moves_to_j0_and_gives_the_subjob_back(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit()
    live.batch.free = 4
    await live.poll(1)
    first = await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.poll(40)
    j0 = await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    kinds = live.kinds(job)
    assert "decision.move_to_placeholder" in kinds
    assert live.job(job).members == [f"{job}.0"]
    assert live.epochs(job)[-1].processors == 16
    assert [k for k, _ in first.done][-1] == "exit" and "launch" in [k for k, _ in j0.done]
    order = [kinds.index(k) for k in ("epoch.stopped", "subjob.released")]
    running = [i for i, k in enumerate(kinds) if k == "epoch.running"]
    assert order[0] < running[1] < order[1], "a subjob is released only when the next placement runs"


async def test_goes_on_without_j0_when_that_is_earlier(live: LiveWorld) -> None:
    live.batch.free = 8
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.poll(196)  # 98 s of 100 done at rate 1/2
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    assert "decision.keep_subjobs" in live.kinds(job)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.HELD, "off its processors, and its number is the job's"
    assert live.job(job).state == "running"


async def test_starts_over_on_j0_when_nothing_is_gained_by_moving(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.poll(1)
    live.batch.start(f"ejb-{job}.0")
    live.batch.free = 0
    await live.poll(1)
    assert "decision.start_on_placeholder" in live.kinds(job)
    live.workers[f"{job}.0"] = worker = type(live.workers[f"{job}.1"])(live, f"{job}.0", 16)
    await worker.register()
    await live.work()
    epochs = live.epochs(job)
    assert epochs[-1].restart_from is None and epochs[-1].members == [f"{job}.0"]
    assert live.job(job).incarnation == 2


async def test_a_command_whose_first_lead_was_left_before_it_led_is_launched_on_the_next(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    first = await live.arrive(f"{job}.1")
    j0 = await live.arrive(f"{job}.0")
    await live.poll()
    await live.work()
    await live.poll()
    await live.work()
    assert live.job(job).script_run == 2 and "launch" not in [kind for kind, _ in first.done]
    assert [e.members for e in live.epochs(job)] == [[f"{job}.0"]]
    await j0.finish_ranks(1)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed" and len(live.launches(job)) == 1


async def test_a_command_whose_first_lead_is_lost_before_it_leads_is_launched_on_the_next(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    first = await live.arrive(f"{job}.1")
    await first.register(boot="b")  # its node has started it anew
    await live.work()
    assert live.job(job).script_run == 2 and live.job(job).state == "running"
    assert [e.state for e in live.epochs(job)] == ["running"]


async def test_a_failed_checkpoint_leaves_everything_as_it_was(live: LiveWorld) -> None:
    job = await running_on_first(live)
    live.workers[f"{job}.1"].fail["checkpoint"] = {}
    await live.poll(10)
    await live.begin(f"{job}.2")
    await live.work()
    epochs = live.epochs(job)
    assert [e.state for e in epochs] == ["running"]
    assert live.job(job).work_rate == 0.25
    assert ("epoch.running", "checkpoint failed: checkpoint failed") in [
        (k, d.get("reason")) for k, d in live.events(job)
    ]
    live.workers[f"{job}.1"].fail.clear()
    await live.poll(11)
    await live.work()
    assert live.epochs(job)[-1].processors == 8


async def test_a_half_written_checkpoint_goes_back_to_the_one_before(live: LiveWorld) -> None:
    job = await running_on_first(live)
    live.workers[f"{job}.1"].fail["checkpoint"] = {"exits": {"0": 85, "1": 85}}
    await live.poll(10)
    await live.begin(f"{job}.2")
    await live.work()
    epochs = live.epochs(job)
    assert epochs[0].state == "failed"
    assert epochs[1].restart_from is None and epochs[1].members == [f"{job}.1"]
    assert live.job(job).setbacks == 1


async def test_a_failed_restart_goes_back_to_the_old_placement(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.poll(10)
    live.batch.start(f"ejb-{job}.2")
    await live.poll()
    bad = live.workers[f"{job}.2"] = type(live.workers[f"{job}.1"])(live, f"{job}.2", 4)
    bad.fail["launch"] = {}
    await bad.register()
    await live.work(10)
    epochs = live.epochs(job)
    assert [e.state for e in epochs] == ["stopped", "failed", "running"]
    assert epochs[2].restart_from == 1 and epochs[2].members == [f"{job}.1"]
    assert "exit" in [k for k, _ in bad.done]


async def test_a_lost_subjob_sends_the_job_back_to_waiting_with_its_progress(live: LiveWorld) -> None:
    job = await running_on_first(live)
    live.batch.end(f"ejb-{job}.1", BatchState.NODE_FAIL, None)
    live.batch.free = 0
    await live.poll(61, heartbeats=False)
    row = live.job(job)
    assert row.state == "waiting" and row.incarnation == 2 and row.setbacks == 1
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    assert live.job(job).state == "running"
    assert live.epochs(job)[-1].members == [f"{job}.0"]


async def test_a_started_subjob_that_waits_again_has_lost_its_workers_at_once(live: LiveWorld) -> None:
    """Its node failed, and the batch system put it back into its queue: their silence is not waited for."""
    job = await running_on_first(live)
    assert live.subjobs(job)[1].state == "running"
    row, live.batch.free = live.batch.of(f"ejb-{job}.1"), 0
    live.batch.jobs[row.id] = replace(row, state=BatchState.PENDING, start_s=None, end_s=None, nodes=())
    await live.poll(1, heartbeats=False)
    assert [e.state for e in live.epochs(job)] == ["failed"] and live.job(job).members == []
    assert live.store.read_sync(lambda s: s.scalars(select(WorkerRow.alive)).all()) == [False]
    await live.poll(1, heartbeats=False)
    assert (live.job(job).state, live.job(job).setbacks) == ("waiting", 1)


@pytest.mark.parametrize("answers", [True, False])
async def test_what_runs_on_a_lost_node_is_ended_before_the_job_begins_elsewhere(
    live: LiveWorld, answers: bool
) -> None:
    """The batch system gives a node up whose workers speak (its daemon there was killed): they are told to leave."""
    job = await running_on_first(live)
    live.batch.end(f"ejb-{job}.1", BatchState.NODE_FAIL, None)
    worker = live.workers[f"{job}.1"]
    await live.begin(f"{job}.0")
    for _ in range(5):
        await live.poll(5)
    assert live.subjobs(job)[1].state == "running" and live.subjobs(job)[1].releasing
    assert [e.state for e in live.epochs(job)] == ["failed"] and live.job(job).setbacks == 1
    if answers:
        assert "exit" in await worker.work()
        await live.poll(1)
    else:
        assert (
            f"running: {job}.1 is lost: the batch system has given it up with its node (NODE_FAIL"
            in ((await live.manager.explain(job))["now"])
        )
        live.clock.now += 16  # a heartbeat and a half: nobody waits for the whole silence of a worker
        await live.work()
        await live.poll(heartbeats=False)
    assert live.subjobs(job)[1].state == "lost"
    await live.work()
    await live.poll(1)
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["failed", "running"]
    assert live.epochs(job)[-1].members == [f"{job}.0"]
    assert live.job(job).setbacks == 1


async def test_a_silent_worker_loses_its_subjob_before_anything_is_launched_again(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.poll(61, heartbeats=False)
    assert "worker.lost" in live.kinds(job)
    assert live.batch.of(f"ejb-{job}.1").state is BatchState.CANCELLED
    await live.poll(1)
    assert live.job(job).state == "waiting"
    assert len(live.epochs(job)) == 1


async def test_a_rank_that_fails_fails_the_job_with_its_code(live: LiveWorld) -> None:
    job = await running_on_first(live)
    worker = live.workers[f"{job}.1"]
    await worker.report("rank-exit", epoch=1, rank=3, code=7)
    await live.work()
    row = live.job(job)
    assert row.state == "failed" and row.exit_code == 7 and "code 7" in row.reason
    assert "stop" in [k for k, _ in worker.done]


async def test_a_rank_that_was_killed_for_memory_is_not_just_killed(live: LiveWorld) -> None:
    job = await running_on_first(live)
    worker = live.workers[f"{job}.1"]
    await worker.report("rank-exit", epoch=1, rank=3, code=137, memory=True)
    await live.work()
    row = live.job(job)
    assert row.state == "failed" and row.exit_code == 1, "what srun returns then"
    assert row.reason.startswith("OUT_OF_MEMORY: task 3 of the last launch was killed")
    said = [data["said"][0] for kind, data in live.events(job) if kind == "rank.failed"]
    assert said == [f"{worker.node}: task 3: Out Of Memory"]
    assert ("rank.memory", {"epoch": 1, "rank": 3, "node": worker.node}) in live.events(job)


async def test_moves_off_a_subjob_before_it_ends(live: LiveWorld) -> None:
    """4 processors for long, and 4 more that the batch system grants for 100 s only."""
    job = await live.submit(walltime_s=400.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.poll(20)
    second = live.subjobs(job)[2]
    live.batch.start(f"ejb-{second.id}", walltime_s=100)
    live.batch.free = 0
    await live.poll(1)
    worker = live.workers[second.id] = type(live.workers[f"{job}.1"])(live, second.id, second.processors)
    await worker.register()
    await live.work()
    assert set(live.epochs(job)[-1].members) == {f"{job}.1", second.id}
    await live.poll(90)
    assert "decision.shrink" in live.kinds(job)
    await live.work()
    assert live.epochs(job)[-1].members == [f"{job}.1"]
    assert "exit" in [k for k, _ in worker.done]


async def test_outliving_the_plan_goes_back_to_waiting_once_then_times_out(live: LiveWorld) -> None:
    job = await running_on_first(live)
    live.batch.free = 0
    await live.poll(420)  # 4 processors x 400 s are R, and no rank has ended
    await live.work()
    await live.act()
    assert live.job(job).state == "waiting" and live.job(job).overruns == 1
    assert live.epochs(job)[-1].state == "stopped"
    live.batch.end(f"ejb-{job}.1")
    await live.poll(1)
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[-1].restart_from == 1
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(101)
    assert live.job(job).state == "timeout"


async def test_a_subjob_that_does_not_start_is_cancelled_and_the_window_looked_at_again(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    await live.poll(31)
    assert live.batch.of(f"ejb-{job}.1").state is BatchState.CANCELLED
    await live.poll(1)
    assert len(live.subjobs(job)) == 2, "no new subjob before the pause is over"
    await live.poll(31)
    assert len(live.subjobs(job)) == 3


@pytest.mark.parametrize("fault", ["lose_answers", "hang_submissions"])
async def test_a_submission_of_unknown_outcome_is_looked_up_and_never_doubled(live: LiveWorld, fault: str) -> None:
    setattr(live.batch, fault, 1)
    job = await live.submit()
    assert live.intents("submit")[0].state == "unknown"
    for _ in range(4):
        await live.poll(6)
    assert [j.name for j in live.batch.jobs.values()].count(f"ejb-{job}.0") == 1
    assert live.intents("submit")[0].state == "done"


async def test_a_late_double_is_cancelled(live: LiveWorld) -> None:
    job = await live.submit()
    await live.batch.submit(Identity("ada"), live.batch.requests[live.batch.of(f"ejb-{job}.0").id])
    await live.poll(1)
    doubles = [j for j in live.batch.jobs.values() if j.name == f"ejb-{job}.0"]
    assert sorted(j.state.value for j in doubles) == ["cancelled", "pending"]
    assert "subjob.stray" in live.kinds(job)


async def test_a_job_that_a_users_script_has_submitted_is_left_alone_whatever_it_is_called(live: LiveWorld) -> None:
    """`sbatch -J "$SLURM_JOB_NAME"`, a comment that is copied, `qsub -V`: what runs hands on what it is known by."""
    job = await running_on_first(live)
    await live.poll(5)
    own = await live.batch.submit(Identity("ada"), live.batch.requests[live.batch.of(f"ejb-{job}.1").id])
    for _ in range(3):
        await live.poll(40)
    assert live.batch.jobs[own].state is BatchState.PENDING
    assert [data["batch_id"] for kind, data in live.events(job) if kind == "subjob.lookalike"] == [own]
    assert "subjob.stray" not in live.kinds(job)


async def test_a_double_that_turns_up_once_the_subjob_runs_is_cancelled(live: LiveWorld) -> None:
    live.batch.lose_answers = 1
    job = await live.submit()
    first = live.batch.jobs.pop(live.batch.of(f"ejb-{job}.0").id)  # the controller answers late
    for _ in range(6):
        await live.poll(6)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    live.batch.jobs[first.id] = replace(first, submit_s=live.clock() + 1)
    await live.poll(2)
    await live.act()
    assert live.batch.jobs[first.id].state is BatchState.CANCELLED and "subjob.stray" in live.kinds(job)


async def test_what_a_script_submits_later_is_no_double_of_a_submission_without_an_answer(live: LiveWorld) -> None:
    live.batch.lose_answers = 1
    job = await live.submit()
    for _ in range(4):
        await live.poll(6)
    live.batch.start(f"ejb-{job}.0", walltime_s=9000.0)
    await live.poll(1)
    await live.poll(3600)
    own = await live.batch.submit(Identity("ada"), live.batch.requests[live.batch.of(f"ejb-{job}.0").id])
    for _ in range(3):
        await live.poll(40)
    assert live.batch.jobs[own].state is BatchState.PENDING
    assert [data["batch_id"] for kind, data in live.events(job) if kind == "subjob.lookalike"] == [own]


async def test_another_users_job_under_our_name_is_left_alone(live: LiveWorld) -> None:
    job = await live.submit()
    id = await live.batch.submit(Identity("ada"), live.batch.requests[live.batch.of(f"ejb-{job}.0").id])
    live.batch.jobs[id] = replace(live.batch.jobs[id], user="mallory", foreign=True)
    for _ in range(3):
        await live.poll(40)
    assert live.batch.jobs[id].state is BatchState.PENDING
    assert "subjob.stray" not in live.kinds(job)
    assert id not in [intent.batch_id for intent in live.intents("cancel")]


async def test_a_silent_batch_system_fails_nobody(live: LiveWorld) -> None:
    job = await running_on_first(live)
    live.batch.silent = True
    for _ in range(20):
        await live.poll(5)
    assert live.job(job).state == "running"
    assert not live.manager.health()["ok"]
    live.batch.silent = False
    await live.poll(5)
    assert live.manager.health()["ok"]


async def test_absence_is_not_an_end_until_the_grace_is_over(live: LiveWorld) -> None:
    job = await running_on_first(live)
    kept = live.batch.of(f"ejb-{job}.1")
    live.batch.forget(f"ejb-{job}.1")
    await live.poll(5)
    assert live.job(job).state == "running" and "subjob.missing" in live.kinds(job)
    live.batch.jobs[kept.id] = kept
    await live.poll(5)
    assert live.subjobs(job)[1].missing_since_s is None
    live.batch.forget(f"ejb-{job}.1")
    await live.poll(5)
    await live.poll(31)
    assert live.subjobs(job)[1].state == "running", "its worker is heard of"
    await live.poll(61, heartbeats=False)
    assert live.subjobs(job)[1].state == "lost"


async def test_workers_that_do_not_come_cost_their_subjob(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    live.batch.start(f"ejb-{job}.1")
    await live.poll(1)
    await live.poll(61)
    assert live.batch.of(f"ejb-{job}.1").state is BatchState.CANCELLED
    live.batch.free = 0
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    await live.poll(62)
    await live.poll(1)
    assert [s.role for s in live.subjobs(job)].count("placeholder") == 2, "J0 is asked for again"


async def test_cancel_hold_release(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit()
    await live.manager.hold(job, "ada")
    await live.act()
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.HELD
    live.batch.free = 4
    await live.poll(5)
    assert len(live.subjobs(job)) == 1, "a held job takes no window"
    await live.manager.release(job, "ada")
    await live.act()
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING
    await live.manager.cancel(job, "ada")
    await live.act()
    assert live.job(job).state == "cancelled"
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED


async def test_cancelling_a_running_job_stops_its_ranks(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.manager.cancel(job, "ada")
    await live.work()
    await live.act()
    assert live.job(job).state == "cancelled"
    assert [k for k, _ in live.workers[f"{job}.1"].done][-4:] == ["stop", "drain", "unlead", "exit"]


async def test_queue_off_passes_the_job_through(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity="off")
    job = await live.submit()
    assert [s.role for s in live.subjobs(job)] == ["rigid"]
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    assert live.job(job).state == "running"
    live.batch.end(f"ejb-{job}.0", BatchState.FAILED, 3)
    ended_s = live.clock.now
    await live.poll(30)
    assert live.job(job).state == "failed" and live.job(job).exit_code == 3
    assert live.job(job).end_s == ended_s, "as the batch system has it, not when the daemon looked"


async def test_what_a_passed_through_job_waits_for_is_told_in_the_batch_systems_words(
    tmp_path: Path, store: Store
) -> None:
    live = LiveWorld(tmp_path, store, elasticity="off")
    job = await live.submit()
    waits = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[waits.id] = replace(waits, reason="launch failed requeued held", blocked=True)
    await live.poll(1)
    now = (await live.manager.explain(job))["now"]
    assert now.endswith("the batch system decides (launch failed requeued held)")
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    assert (await live.manager.explain(job))["now"] == "running: passed through as an ordinary job"


async def test_without_an_engine_nothing_is_moved(live: LiveWorld) -> None:
    job = await live.submit(engine="none")
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.poll(10)
    assert len(live.subjobs(job)) == 2
    assert any("cannot be moved" in d["decision"]["reason"] for k, d in live.events(job) if k == "decision.nothing")


async def test_restart_of_the_daemon_goes_on_where_it_was(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.restart()
    await live.poll(10)
    await live.begin(f"{job}.2")
    await live.work()
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[-1].processors == 8


async def deaf_to_launches(live: LiveWorld, subjob: str) -> Worker:
    """The subjob starts, and its worker is told of a launch and does not answer."""
    worker = await live.arrive(subjob)
    worker.deaf.add("launch")
    await live.work()
    return worker


async def test_the_time_in_which_there_was_no_daemon_is_no_delay_of_a_restart(live: LiveWorld) -> None:
    """The ranks may have been up for long when the daemon comes back: first it listens to what workers have to tell."""
    job = await running_on_first(live)
    await live.poll(10)
    second = await deaf_to_launches(live, f"{job}.2")
    assert [e.state for e in live.epochs(job)] == ["stopped", "launching"]
    live.clock.now += 600
    await live.restart()
    await live.poll(1)
    assert [e.state for e in live.epochs(job)] == ["stopped", "launching"]
    second.deaf.clear()
    live.clock.now += live.settings.limits.lease_s
    await live.work()
    assert [e.state for e in live.epochs(job)] == ["stopped", "running"]


async def test_a_restart_that_is_late_with_the_daemon_there_has_failed(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.poll(10)
    await deaf_to_launches(live, f"{job}.2")
    await live.restart()
    await live.poll(live.settings.limits.launch_timeout_s + 1)
    assert live.epochs(job)[1].state == "failed"
    assert any(d.get("reason") == "not up within 60 s" for k, d in live.events(job) if k == "epoch.failed")


async def test_a_subjob_that_began_while_there_was_no_daemon_is_waited_for(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.poll(10)
    live.batch.start(f"ejb-{job}.2")
    await live.poll()
    live.clock.now += 600
    await live.restart()
    await live.poll(1)
    assert not live.subjobs(job)[2].releasing
    await live.poll(live.settings.limits.launch_timeout_s + 1)
    assert live.subjobs(job)[2].releasing


async def test_script_launches_are_remembered_by_their_ordinal(live: LiveWorld) -> None:
    script = "#!/bin/sh\nsrun ./a\nsrun ./b\n"
    job = await live.submit(kind=JobKind.SCRIPT, script=script, argv=())
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    assert live.subjobs(job)[1].anchor
    assert [k for k, _ in worker.done] == ["lead"]
    for ordinal in (0, 1):
        await worker.report(
            "launch", ordinal=ordinal, size=16, file=str(live.manager.world.spool.launch_file(job, ordinal))
        )
        await worker.report(
            "launch", ordinal=ordinal, size=16, file=str(live.manager.world.spool.launch_file(job, ordinal))
        )
        await live.work()
        await worker.finish_ranks(ordinal + 1)
        await live.work()
    ended = [p for k, p in worker.done if k == "launch-ended"]
    assert ended == [{"ordinal": 0, "code": 0}, {"ordinal": 1, "code": 0}]
    await worker.report("script-exit", run=1, code=0)
    await live.work()
    assert live.job(job).state == "completed"
    assert [launch.exit_code for launch in live.launches(job)] == [0, 0]


async def test_ranks_of_srun_are_waited_for_when_one_has_failed_and_not_moved(live: LiveWorld) -> None:
    """As srun does; the highest code is the launch's. Nobody checkpoints a part of them."""
    job = await live.submit(kind=JobKind.SCRIPT, script="#!/bin/sh\nsrun ./a\n", argv=())
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    file = str(live.manager.world.spool.launch_file(job, 0))
    await worker.report("launch", ordinal=0, size=16, file=file, together=False)
    await live.work()
    await worker.report("rank-exit", epoch=1, rank=3, code=4)
    await live.poll(10)
    await live.begin(f"{job}.2")
    await live.poll(10)
    await live.work()
    assert [epoch.state for epoch in live.epochs(job)] == ["running"]
    assert not {"stop", "checkpoint"} & {kind for kind, _ in worker.done}
    for rank in {*range(16)} - {3}:
        await worker.report("rank-exit", epoch=1, rank=rank, code=2 if rank == 5 else 0)
    await live.work()
    assert [p for k, p in worker.done if k == "launch-ended"] == [
        {"ordinal": 0, "code": 4, "say": ["n1: task 3: Exited with exit code 4", "n1: task 5: Exited with exit code 2"]}
    ]


async def test_nobody_else_can_start_anything(live: LiveWorld) -> None:
    with pytest.raises(EjbError, match="runs jobs as 'ada' and you are 'eve'"):
        await live.submit(user="eve")
    assert live.store.read_sync(lambda s: s.scalar(select(func.count()).select_from(Job))) == 0


async def test_reports_that_a_dead_worker_left_behind_are_read(live: LiveWorld) -> None:
    """The daemon was away while the application ended, and the subjob with it: the job has not been lost."""
    job = await running_on_first(live)
    worker = live.workers[f"{job}.1"]
    folder = live.manager.world.spool.subjob_dir(job, f"{job}.1") / "reports"
    folder.mkdir()
    exits = [{"n": worker.n + 1 + r, "kind": "rank-exit", "epoch": 1, "rank": r, "code": 0} for r in range(16)]
    lines = [json.dumps(report) for report in exits]
    (folder / f"n1-a-{job}.1-n1.jsonl").write_text("\n".join(lines) + '\n{"n": 99, "ki')
    await live.restart()
    live.batch.end(f"ejb-{job}.1", BatchState.TIMEOUT, None)
    await live.poll(400)
    await live.poll(1)
    assert live.job(job).state == "completed" and live.job(job).exit_code == 0


async def test_what_fits_as_it_is_is_left_to_the_batch_system(live: LiveWorld) -> None:
    live.batch.free = 16
    job = await live.submit()
    await live.poll(1)
    assert [s.role for s in live.subjobs(job)] == ["placeholder"]
    await live.poll(15)  # something keeps J0 from starting: a limit, a priority
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob"]


async def test_a_passed_through_job_may_name_no_walltime(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity="off")
    job = await live.submit(walltime_s=0.0)
    assert live.batch.requests[live.batch.of(f"ejb-{job}.0").id].walltime_s is None


async def test_submissions_keep_to_their_rate(live: LiveWorld) -> None:
    live.batch.free = 0
    live.settings.limits.submits_per_s = 2.0
    jobs = [await live.submit() for _ in range(6)]
    await live.act()
    assert len(live.batch.jobs) == 2, "one second's worth at once"
    await live.poll(1)
    assert len(live.batch.jobs) == 4
    await live.poll(1)
    assert {j.name for j in live.batch.jobs.values()} == {f"ejb-{job}.0" for job in jobs}


async def test_an_id_that_was_given_to_another_job_is_left_alone(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit()
    j0 = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[j0.id] = replace(j0, name="somebody-else", tag="", user="eve", foreign=True)
    await live.poll(1)
    await live.manager.cancel(job, "ada")
    await live.poll(1)
    assert live.job(job).state == "cancelled"
    assert live.batch.jobs[j0.id].state is BatchState.PENDING, "the stranger was cancelled"


async def test_a_running_job_that_loses_j0_keeps_its_way_back(live: LiveWorld) -> None:
    job = await running_on_first(live)
    live.batch.forget(f"ejb-{job}.0")
    await live.poll(5)
    await live.poll(31)
    assert "placeholder" in [s.role for s in live.subjobs(job) if s.state == "pending"]
    assert live.job(job).state == "running"


async def test_a_j0_that_fails_before_it_runs_ends_no_job_that_runs_elsewhere(live: LiveWorld) -> None:
    job = await running_on_first(live)
    live.batch.end(f"ejb-{job}.0", BatchState.FAILED, 1)
    await live.poll(1)
    await live.poll(1)
    assert live.job(job).state == "running"
    assert [s.role for s in live.subjobs(job)].count("placeholder") == 2


async def test_ranks_that_fail_because_a_node_died_do_not_fail_the_job(live: LiveWorld) -> None:
    job = await running_on_first(live)
    await live.poll(10)
    second = await live.begin(f"{job}.2")
    await live.work()
    assert live.epochs(job)[-1].state == "running"
    second.id = ""  # dead, and nobody knows yet; its peers lose their connections
    first = live.workers[f"{job}.1"]
    await first.report("rank-exit", epoch=2, rank=live.epochs(job)[-1].placement[0][0], code=1)
    await live.work()
    assert live.job(job).state == "running"
    live.batch.end(f"ejb-{job}.2", BatchState.NODE_FAIL, None)
    live.clock.now += 61
    await live.work()
    await live.poll(heartbeats=False)
    await live.work()
    epoch = live.epochs(job)[-1]
    assert (epoch.state, epoch.restart_from, epoch.members) == ("running", 1, [f"{job}.1"])


async def test_a_report_that_comes_before_its_turn_waits_for_the_one_in_between(live: LiveWorld) -> None:
    job = await running_on_first(live)
    worker = live.workers[f"{job}.1"]
    first, second = ({"n": worker.n + at, "kind": "log", "level": "info", "message": f"{at}"} for at in (1, 2))

    async def tells(*reports: dict[str, object]) -> int:
        return await live.manager.worker_reports(worker.subjob, worker.id, list(reports))

    assert await tells(second) == worker.n
    assert await tells(second, first) == await tells(first, second) == worker.n + 2
    assert [data["message"] for kind, data in live.events(job) if kind == "worker.log"] == ["1", "2"]


class Killed(Exception):
    pass


@pytest.mark.parametrize("taken", [True, False])
async def test_a_daemon_that_is_killed_in_a_submission_makes_it_once(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    submit = live.batch.submit

    async def killed(identity: Identity, request: SubmitRequest) -> str:
        if taken:
            await submit(identity, request)
        raise Killed

    monkeypatch.setattr(live.batch, "submit", killed)
    with pytest.raises(Killed):
        await live.submit()
    monkeypatch.setattr(live.batch, "submit", submit)
    assert live.intents("submit")[0].state == "executing"
    live.batch.free = 0
    await live.restart()
    for _ in range(5):
        await live.poll(6)
    assert len(live.batch.jobs) == 1 and live.intents("submit")[0].state == "done"


async def test_what_was_handed_out_comes_again_only_when_its_lease_is_over(live: LiveWorld) -> None:
    """The worker may be at it yet, whatever else there is for it by then."""
    job = await running_on_first(live)
    worker = live.workers[f"{job}.1"]

    async def handed_out() -> list[int]:
        return [one["seq"] for one in await live.manager.worker_operations(worker.subjob, worker.id, 0, 0)]

    await live.manager.signal(job, "USR1", "ranks", "ada")
    (first,) = await handed_out()
    await live.manager.signal(job, "USR2", "ranks", "ada")
    (second,) = await handed_out()
    assert second > first and await handed_out() == []
    live.clock.now += live.settings.limits.lease_s + 1
    assert await handed_out() == [first, second]
