"""Limits of accounts, live: no subjob stands in the way of its own J0, and what does is given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.question import Question
from ejbd.core.view import AccountLimit, BatchJobView, BatchState, Counted, FairShare, Share
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

MAX_JOBS = AccountLimit("MaxJobs of ada in account physics", Counted.JOBS, 1, 0, ("physics",), own=True)


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Callable[..., LiveWorld]:
    def make(**queue: Any) -> LiveWorld:
        live = LiveWorld(tmp_path, store, **queue)
        live.batch.account = "physics"
        return live

    return make


async def told(live: LiveWorld, job: str) -> str:
    return str((await live.manager.explain(job))["now"])


async def runs_on_a_subjob(live: LiveWorld, most: int = 2) -> str:
    """16 ranks on the only 4 processors that are free, while others hold the other 28."""
    live.batch.limits = (replace(MAX_JOBS, most=most),)
    job = await live.submit(16, walltime_s=1000.0)
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.free = 0
    live.batch.limits = (replace(MAX_JOBS, most=most, used=1),)
    await live.poll(20)
    assert (live.job(job).state, live.epochs(job)[-1].state) == ("running", "running"), live.events(job)
    return job


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "limit",
    [
        MAX_JOBS,
        replace(MAX_JOBS, name="MaxSubmitJobs", counted=Counted.SUBMITTED, used=1),
        replace(MAX_JOBS, name="GrpTRES=cpu", counted=Counted.PROCESSORS, most=17, own=False),
        replace(MAX_JOBS, name="MaxTRESPU=cpu", counted=Counted.PROCESSORS, most=17, accounts=(), qos=""),
        replace(MAX_JOBS, name="GrpTRES=node", counted=Counted.NODES, most=4, own=False),
        replace(MAX_JOBS, name="GrpTRESRunMins=cpu", counted=Counted.PROCESSOR_SECONDS, most=16_100, own=False),
        replace(MAX_JOBS, name="MaxTRESPJ=cpu", counted=Counted.OF_A_JOB, most=1),
    ],
    ids=lambda limit: limit.name.partition(" ")[0],
)
async def test_a_limit_that_leaves_no_more_than_j0_needs_leaves_no_subjob(
    world: Callable[..., LiveWorld], limit: AccountLimit
) -> None:
    live = world()
    live.batch.node_processors = 4
    live.batch.limits = (limit,)
    job = await live.submit(16, walltime_s=1000.0)
    await live.poll(1)
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder"]
    now = await told(live, job)
    assert f"limits bound what it may be given beside J0: {limit.name}" in now
    live.batch.limits = ()
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob"], "it was the limit and nothing else"


async def test_no_more_subjobs_are_asked_for_than_the_limit_leaves_beside_j0(
    world: Callable[..., LiveWorld],
) -> None:
    live = world()
    job = await runs_on_a_subjob(live)
    live.batch.free = 8
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob"]
    assert "MaxJobs of ada in account physics, 1 of 2 used" in await told(live, job)
    live.batch.limits = (replace(MAX_JOBS, most=3, used=1),)
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob", "subjob"]


async def test_two_jobs_of_one_poll_do_not_take_the_same_slot(world: Callable[..., LiveWorld]) -> None:
    live = world()
    live.batch.free = 8
    live.batch.limits = (replace(MAX_JOBS, most=2),)
    jobs = [await live.submit(32, walltime_s=1000.0) for _ in range(2)]
    await live.poll(1)
    await live.poll(5)
    assert sorted(len(live.subjobs(job)) for job in jobs) == [1, 2]


async def test_what_runs_is_given_back_where_j0_could_start_but_for_it(world: Callable[..., LiveWorld]) -> None:
    live = world()
    job = await runs_on_a_subjob(live)
    live.batch.limits = (replace(MAX_JOBS, most=1, used=1),)
    live.batch.stand(f"ejb-{job}.0", "AssocMaxJobsLimit")
    await live.poll(5)
    assert live.job(job).members, "there is no room for J0: going on is better than waiting"
    why = "stands on AssocMaxJobsLimit (MaxJobs of ada in account physics, 1 of 1 used)"
    assert why in await told(live, job)
    live.batch.free = 28
    await live.poll(5)
    data = next(data for kind, data in live.events(job) if kind == "decision.suspend")
    said = "J0 of this job (100) stands on AssocMaxJobsLimit (MaxJobs of ada in account physics)"
    assert data["reason"] == f"{said}, and could start but for what this job runs on"
    question = Question.from_json(data["question"])
    assert question.to_json() == data["question"] and question.answer().to_json() == data["decision"]
    await live.work()
    await live.act()
    live.batch.end(f"ejb-{job}.1")
    live.batch.free = 32
    live.batch.limits = (replace(MAX_JOBS, most=1, used=0),)
    await live.poll(5)
    row = live.job(job)
    assert row.state == "waiting" and row.work_s > 0
    assert len(live.subjobs(job)) == 2, "the room is J0's"
    live.batch.stand(f"ejb-{job}.0")
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[-1].restart_from is not None, "with the work kept"


async def test_a_j0_that_is_not_worth_going_to_gets_nothing_back(world: Callable[..., LiveWorld]) -> None:
    """At full width on its subjob the job would be done no earlier on J0."""
    live = world()
    live.batch.free = 16
    live.batch.limits = (replace(MAX_JOBS, most=2),)
    job = await live.submit(16, walltime_s=1000.0)
    await live.poll(40)
    await live.begin(f"{job}.1")
    await live.poll(20)
    assert live.job(job).state == "running", live.events(job)
    live.batch.limits = (replace(MAX_JOBS, most=1, used=1),)
    live.batch.stand(f"ejb-{job}.0", "AssocMaxJobsLimit")
    await live.poll(10)
    assert "decision.suspend" not in [kind for kind, _ in live.events(job)]


async def test_what_a_user_submits_later_is_not_kept_waiting_by_an_over_subscribed_job(
    world: Callable[..., LiveWorld],
) -> None:
    live = world()
    job = await runs_on_a_subjob(live)
    live.batch.limits = (replace(MAX_JOBS, most=1, used=1),)
    later = BatchJobView(
        "77", "mine", "ada", "batch", BatchState.PENDING, 4, 600.0, reason="AssocMaxJobsLimit", blocked=True,
        account="physics", limited=True,
    )  # fmt: skip
    live.batch.others = [replace(later, account="chemistry")]
    await live.poll(5)
    assert live.job(job).members, "another account's limit is not this job's doing"
    live.batch.others = [later]
    await live.poll(5)
    told = [data for kind, data in live.events(job) if kind == "decision.suspend"]
    assert [data["given_to"] for data in told] == ["77"]


async def test_a_subjob_that_stands_on_a_limit_is_given_up_at_once(world: Callable[..., LiveWorld]) -> None:
    """By a limit that EJB cannot read, such as one on memory."""
    live = world()
    job = await live.submit(16, walltime_s=1000.0)
    await live.poll(1)
    live.batch.stand(f"ejb-{job}.1", "AssocGrpMemLimit")
    await live.poll(5)
    reasons = [data.get("reason", "") for kind, data in live.events(job) if kind == "subjob.released"]
    assert reasons == ["cannot start (AssocGrpMemLimit)"]
    await live.poll(20)
    assert len(live.subjobs(job)) == 2, "no other for a while"


async def test_nothing_is_asked_for_while_j0_stands_on_a_limit_that_nobody_can_read(
    world: Callable[..., LiveWorld],
) -> None:
    live = world()
    live.batch.free = 0
    job = await live.submit(16, walltime_s=1000.0)
    await live.poll(1)
    live.batch.stand(f"ejb-{job}.0", "Licenses")
    live.batch.free = 4
    await live.poll(5)
    assert len(live.subjobs(job)) == 1
    now = await told(live, job)
    assert "J0 (100) stands on Licenses" in now and "limits bound what it may be given beside J0: Licenses" in now
    live.batch.stand(f"ejb-{job}.0")
    await live.poll(5)
    assert len(live.subjobs(job)) == 2


async def test_a_limit_on_a_job_that_is_passed_through_is_named_too(world: Callable[..., LiveWorld]) -> None:
    live = world(elasticity="off")
    job = await live.submit(16, walltime_s=1000.0)
    await live.poll(1)
    live.batch.stand(f"ejb-{job}.0", "QOSMaxJobsPerUserLimit")
    await live.poll(5)
    assert "its batch job (100) stands on QOSMaxJobsPerUserLimit" in await told(live, job)


async def test_subjobs_are_charged_to_what_their_queue_has_for_them(world: Callable[..., LiveWorld]) -> None:
    """J0 is its user's own; beside it stands what is charged elsewhere, which its limits do not bound."""
    live = world(subjob_qos="ejb", subjob_account="elastic")
    live.executor.asking.settings = live.settings.model_copy(update={"batch": "slurm"})
    live.batch.limits = (MAX_JOBS,)
    job = await live.submit(16, walltime_s=1000.0)
    await live.poll(1)
    await live.poll(5)
    found = {live.batch.of(s.tag).account: live.batch.of(s.tag).qos for s in live.subjobs(job)}
    assert found == {"physics": "", "elastic": "ejb"}


async def test_what_subjobs_cost_the_place_of_j0_is_told(world: Callable[..., LiveWorld]) -> None:
    live = world()
    live.batch.fair_share = FairShare(1000.0)
    job = await live.submit(16, walltime_s=1000.0)
    assert "fair share" not in await told(live, job), "nothing is charged yet"
    await live.poll(1)
    await live.poll(5)
    assert "lowers J0's priority by fair share" in await told(live, job)


async def test_a_subjob_that_would_cost_j0_its_place_is_not_asked_for(world: Callable[..., LiveWorld]) -> None:
    """A rival that is planned right behind J0 would pass it by the first processor that its account uses."""
    live = world()
    live.batch.fair_share = FairShare(1000.0, shares=(Share("physics", 0.5, 0.0), Share("chemistry", 0.5, 0.0)))
    job = await live.submit(16, walltime_s=1000.0)
    await live.act()
    rival = BatchJobView(
        "77", "x", "eve", "batch", BatchState.PENDING, 32, 5000.0, account="chemistry", priority=7,
        planned_start_s=live.batch.clock() + 1300.0,
    )  # fmt: skip
    j0 = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[j0.id] = replace(j0, priority=7, planned_start_s=live.batch.clock() + 300.0)
    live.batch.others = [rival]
    await live.poll(1)
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder"]
    assert "job 77 of eve would go first and cost J0 5000 s" in await told(live, job)
    live.batch.others = [replace(rival, account="physics")]
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob"], "it was the rival and nothing else"


async def test_what_is_charged_elsewhere_costs_no_place(world: Callable[..., LiveWorld]) -> None:
    live = world(subjob_qos="ejb")
    live.batch.fair_share = FairShare(1000.0, shares=(Share("physics", 0.5, 0.0), Share("chemistry", 0.5, 0.0)))
    job = await live.submit(16, walltime_s=1000.0)
    await live.act()
    j0 = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[j0.id] = replace(j0, priority=7, planned_start_s=live.batch.clock() + 300.0)
    live.batch.others = [replace(j0, id="77", user="eve", name="x", account="chemistry", priority=7,
                                 foreign=True, planned_start_s=live.batch.clock() + 1300.0)]  # fmt: skip
    await live.poll(1)
    await live.poll(5)
    assert [s.role for s in live.subjobs(job)] == ["placeholder", "subjob"]
