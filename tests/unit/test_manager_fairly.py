"""Users have their turns: what one has waiting does not keep another's from room, and a restart forgives nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.manager.acts import intents
from ejbd.manager.acts.executor import SUBMISSIONS_A_PASS
from ejbd.manager.acts.subjobs import add_subjob
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Job, Subjob
from ejbd.store.store import Store
from ejbd.wire.kinds import SubjobRole
from tests.fakes.many import ManyWorld

pytestmark = pytest.mark.database


@pytest.fixture
def world(tmp_path: Path, store: Store) -> Callable[..., ManyWorld]:
    return lambda **queue: ManyWorld(tmp_path, store, **queue)


async def waiting(live: ManyWorld) -> tuple[list[str], str]:
    """Six short jobs of alice, and then a long one of bob."""
    live.batch.free = 0
    alices = [await live.submit(walltime_s=100.0 + at, user="alice") for at in range(6)]
    bobs = await live.submit(walltime_s=1000.0, user="bob")
    await live.poll(20)
    return alices, bobs


def has_room(live: ManyWorld, job: str) -> bool:
    return len(live.subjobs(job)) > 1


@pytest.mark.parametrize(("half_life_s", "bob"), [(86400.0, True), (0.0, False)])
async def test_one_of_bobs_has_its_turn_beside_six_of_alices(
    world: Callable[..., ManyWorld], half_life_s: float, bob: bool
) -> None:
    live = world(fair_half_life_s=half_life_s)
    alices, bobs = await waiting(live)
    live.batch.free = 4
    await live.poll(1)
    assert has_room(live, alices[0]), "of users that have used nothing the least work comes first"
    await live.begin(f"{alices[0]}.1")
    await live.poll(5)
    assert has_room(live, bobs) is bob
    assert sum(has_room(live, job) for job in alices) == (1 if bob else 2)


async def test_one_job_is_not_submitted_behind_200_of_another_user(world: Callable[..., ManyWorld]) -> None:
    live = world()
    live.batch.free = 0
    for _ in range(200):
        await live.manager.submit(live.reading(), "alice", None, "hash")
    for _ in range(4):
        await live.act(1)
    job = (await live.manager.submit(live.reading(), "bob", None, "hash")).id
    before = submissions(live)
    for _ in range(60):
        await live.act(1)
        live.clock.now += 1
        if any(job in one for one in submissions(live)):
            break
    behind = [job in one for one in submissions(live)].index(True) - len(before)
    assert behind <= 2 * live.settings.limits.submit_concurrency * SUBMISSIONS_A_PASS, "what was under way already"
    assert len(submissions(live)) < 150


@pytest.mark.sql
async def test_of_submissions_that_are_as_urgent_one_of_each_user_comes_before_the_next_of_any(
    world: Callable[..., ManyWorld],
) -> None:
    """Room that is free now goes before places in the queue, whatever the turns of users."""
    live = world()
    place, room = SubjobRole.PLACEHOLDER, SubjobRole.SUBJOB
    wanted = [("alice", place)] * 3 + [("alice", room)] * 2 + [("carol", place)] * 2 + [("bob", place), ("bob", room)]
    of_users = {user: (await live.manager.submit(live.reading(), user, None, "")).id for user, _ in wanted}

    def ask(session: Session) -> None:
        ctx = live.manager.world.context(session)
        for user, role in wanted:
            job = session.scalars(select(Job).where(Job.id == of_users[user])).one()
            add_subjob(JobWorld(ctx, job), role, 1, 100.0)

    await live.store.write(ask)

    def due(session: Session, most: int, *, in_turn: bool) -> list[tuple[str, str]]:
        found, _ = intents.due(session, live.clock(), most, in_turn=in_turn)
        query = select(Subjob.id, Job.user, Subjob.role).join(Job, Subjob.job_id == Job.id)
        rows = {id: (user, role) for id, user, role in session.execute(query)}
        return [rows[intent.subjob_id or ""] for intent in found]

    fair = [("alice", room), ("bob", room), ("alice", room)]
    fair += [("alice", place), ("carol", place), ("bob", place), ("alice", place), ("carol", place), ("alice", place)]
    assert await live.store.read(lambda s: due(s, 99, in_turn=True)) == fair
    assert await live.store.read(lambda s: due(s, 4, in_turn=True)) == fair[:4]
    as_they_came = sorted(wanted, key=lambda one: one[1] is place)
    assert await live.store.read(lambda s: due(s, 99, in_turn=False)) == as_they_came


def submissions(live: ManyWorld) -> list[str]:
    return [call for call in live.batch.calls if call.startswith("submit ")]


async def test_what_was_used_before_a_restart_counts_after_it(world: Callable[..., ManyWorld]) -> None:
    live = world()
    live.batch.free = 4
    first = await live.submit(walltime_s=100.0, user="alice")
    await live.poll(1)
    await live.begin(f"{first}.1")
    await live.poll(30)
    account = live.manager.world.memory.usage.accounts["batch"]
    held = live.subjobs(first)[1].processors
    assert account.of("alice") == pytest.approx(held * 30.0, rel=0.1) and account.of("bob") == 0.0
    await live.restart()
    await live.poll(0)
    again = live.manager.world.memory.usage.accounts["batch"]
    assert again is not account and again.of("alice") == pytest.approx(account.of("alice"), rel=0.1)


async def test_a_queue_that_tells_no_users_apart_keeps_no_account(world: Callable[..., Any]) -> None:
    live = world(fair_half_life_s=0.0)
    await live.submit()
    await live.poll(5)
    assert live.manager.world.memory.usage.accounts == {}
