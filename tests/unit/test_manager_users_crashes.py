"""The daemon dies while jobs of two users are under way: nothing is lost, doubled, or done as the other user."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import select

from ejbd.manager.crashpoints import CrashPoint
from ejbd.store.models import Intent, Job
from ejbd.store.store import Store
from tests.fakes.crashes import Operator, Trap, caught_by
from tests.fakes.many import ManyWorld
from tests.unit.test_manager_crashes import CANCELLATION, SUBMISSION, TICK, WORKER, new_store, submitted, times

pytestmark = pytest.mark.database

POINTS = (*SUBMISSION, *CANCELLATION, *TICK, *WORKER, CrashPoint.END_AFTER_ASKING)
USERS = ("alice", "bob")


async def both_run_and_end(folder: Path, store: Store, trap: Trap) -> None:
    """A job of each runs beside the other's, on subjobs; that of alice ends, and that of bob is cancelled by bob."""
    live = ManyWorld(folder, store, lambda_s=5.0, max_subjobs=1, guard="off", suspend=False)
    operator = Operator(live, trap)
    live.batch.free = 8
    jobs = {user: await submitted(operator, user) for user in USERS}

    def is_no_j0(tag: str) -> bool:
        return not tag.endswith(".0")

    def running(user: str) -> bool:
        epochs = live.epochs(jobs[user])
        return bool(epochs) and epochs[-1].state == "running"

    await operator.until(lambda: all(running(user) for user in USERS), is_no_j0)
    live.batch.free = 0
    own = {tag: worker for tag, worker in live.workers.items() if tag.startswith(jobs["alice"])}
    others = {tag: worker for tag, worker in live.workers.items() if tag not in own}
    live.workers = own
    await operator.ranks_end(live.epochs(jobs["alice"])[-1].number)
    live.workers = {**own, **others}
    await operator.ask(lambda: live.manager.cancel(jobs["bob"], "bob"))
    await operator.until(lambda: {live.job(job).state for job in jobs.values()} == {"completed", "cancelled"})
    assert live.job(jobs["alice"]).state == "completed" and live.job(jobs["alice"]).exit_code == 0
    await each_is_its_users_own(operator, jobs)


async def each_is_its_users_own(operator: Operator, jobs: dict[str, str]) -> None:
    """Two submissions, two jobs; each subjob one batch job and the other way round; nothing is left to be done."""
    live = operator.live
    assert isinstance(live, ManyWorld)
    await operator.until(lambda: not live.batch.live())
    for _ in range(2):
        await operator.poll(40)
    rows = live.store.read_sync(lambda s: [(row.user, row.id) for row in s.execute(select(Job.user, Job.id))])
    assert sorted(rows) == sorted(jobs.items()), "each user's submission is that user's one job"
    tags = {f"ejb-{s.id}": s.batch_id for job in jobs.values() for s in live.subjobs(job) if s.batch_id is not None}
    assert {one.name: one.id for one in live.batch.jobs.values()} == tags
    assert len(live.batch.jobs) == len(tags), "no tag has two batch jobs"
    assert live.acted_as_others() == []
    assert {user for user, _ in live.helper.done} == set(USERS), "files were made for both"
    states = live.store.read_sync(lambda s: Counter(s.scalars(select(Intent.state))))
    assert not {"pending", "executing", "unknown"} & set(states), states
    for job in jobs.values():
        assert "job.fault" not in live.kinds(job)
        assert len(live.launches(job)) == 1 and live.job(job).incarnation == 1


@pytest.mark.sampled(5)
@pytest.mark.xdist_group("crashes-users")  # one process counts how often an undisturbed life comes to its points
@pytest.mark.parametrize("point", POINTS)
async def test_a_death_at_any_time_loses_doubles_and_mixes_up_nothing(
    point: CrashPoint, tmp_path: Path, sqlite_with_tables: Path
) -> None:
    often = (await times(both_run_and_end, tmp_path, sqlite_with_tables))[point.value]
    assert often, f"it never comes to {point.value}"
    every = os.environ.get("EJB_TEST_CRASHES") == "all"
    for nth in range(1, often + 1) if every else [-(-often // 2)]:  # of what both have, not of the first alone
        folder = tmp_path / str(nth)
        with new_store(folder, sqlite_with_tables) as store, caught_by(trap := Trap(point, nth)):
            await both_run_and_end(folder, store, trap)
        assert trap.deaths == 1


async def test_another_users_word_about_a_job_is_seen_where_it_is_done(tmp_path: Path, store: Store) -> None:
    """The look itself can fail: an act as the other user is refused by the batch system, and kept."""
    live = ManyWorld(tmp_path, store)
    job = await live.submit(user="alice")
    assert live.acted_as_others() == []
    tag = f"ejb-{job}.0"
    live.store.write_sync(lambda s: setattr(s.get_one(Job, live.job(job).seq), "user", "bob"))
    assert f"{tag} as alice" in live.acted_as_others()
