"""One daemon for many users: what one user meets, or does to what runs for it, keeps no other user waiting."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.batch.base import Identity
from ejbd.batch.exits import exit_files
from ejbd.batch.process import CommandResult
from ejbd.batch.slurm.refusals import refusal
from ejbd.core.view import BatchState
from ejbd.errors import BatchError, Code, EjbError, SubmitOutcomeUnknown
from ejbd.files import userfiles
from ejbd.identity import sessions
from ejbd.identity.sessions import Helper, NoAnswer, UsersSessionsAway
from ejbd.manager.acts.subjobs import add_intent
from ejbd.store.models import Event, QueuePause, Subjob
from ejbd.store.store import Store
from ejbd.wire.kinds import IntentKind
from tests.fakes.many import ManyWorld
from tests.unit.test_identity import ME, Asked, batch, request

LIMITS = {  # by what is counted: sbatch's own words for a limit on jobs in the queue
    "user": "AssocMaxSubmitJobLimit",
    "account": "AssocGrpSubmitJobsLimit",
    "user in a QOS": "QOSMaxSubmitJobPerUserLimit",
    "account in a QOS": "MaxSubmitJobsPerAccount",
    "QOS": "QOSGrpSubmitJobsLimit",
}
KILLED = SubmitOutcomeUnknown("Slurm may have taken the job or not: the answer of ejb-as for mallory did not come")


@pytest.fixture
def live(tmp_path: Path, store: Store) -> ManyWorld:
    world = ManyWorld(tmp_path, store)
    world.batch.free = 0
    return world


def asked_for(live: ManyWorld, jobs: list[str]) -> int:
    return sum(call.startswith("submit ") and call[11:].partition(".")[0] in jobs for call in live.batch.calls)


def paused(live: ManyWorld) -> set[str]:
    """For which users, accounts and QOS ("": all)."""
    return set(live.store.read_sync(lambda s: s.scalars(select(QueuePause.whose).where(QueuePause.until_s > 0)).all()))


async def pass_by(live: ManyWorld, seconds: int, step_s: int = 5) -> None:
    for _ in range(seconds // step_s):
        await live.poll(step_s)


async def goes_on(live: ManyWorld, user: str) -> None:
    """A job of that user is in the batch system's queue as soon as it was submitted."""
    job = await live.submit(user=user)
    assert f"ejb-{job}.0" in {one.name for one in live.batch.live()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
async def test_a_limit_that_one_user_stands_on_pauses_no_other_user(live: ManyWorld, limit: str) -> None:
    """Not even where the limit is of an account or QOS that both share: the other one has the batch system's word."""
    words = f"sbatch: error: {limit}\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    live.batch.trouble["alice"] = refusal(CommandResult("sbatch", 1, "", words, 0.1), "take the job")
    jobs = [await live.submit(user="alice", options=("--account=shared", "--qos=long")) for _ in range(6)]
    await pass_by(live, 120)
    assert paused(live) == {"alice/shared/long"}
    assert asked_for(live, jobs) <= 4 + 3 + 120 / 60, "the batch system is not asked again and again"
    job = await live.submit(user="bob", options=("--account=shared", "--qos=long"))
    assert f"ejb-{job}.0" in {one.name for one in live.batch.live()}
    assert "paused" not in (await live.manager.explain(job))["now"]
    live.batch.trouble.clear()
    await pass_by(live, 90)
    assert {f"ejb-{job}.0" for job in jobs} <= {one.name for one in live.batch.live()} and paused(live) == set()


async def test_a_user_that_kills_what_submits_for_it_pauses_no_other_user(live: ManyWorld) -> None:
    """`ejb-as` and `sbatch` run as the user, and so the user can kill them."""
    live.batch.trouble["mallory"] = KILLED
    jobs = [await live.submit(user="mallory") for _ in range(8)]
    await pass_by(live, 120)
    assert paused(live) == {"mallory//"}
    assert asked_for(live, jobs) <= 4 + 3 + 120 / 60
    await goes_on(live, "bob")
    assert "for mallory in the default account" in (await live.manager.explain(jobs[-1]))["now"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOENT, errno.EACCES], ids=errno.errorcode.get)
async def test_a_spool_that_takes_no_files_keeps_its_own_user_waiting_alone(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its quota is used up, or its home is away or closed: the user sees why, and all is made once it is mended."""
    plain = live.helper.ask

    def ask(user: str, verb: str, **more: Any) -> dict[str, Any]:
        if user == "alice" and verb in ("prepare", "put"):
            raise OSError(number, os.strerror(number))
        return plain(user, verb, **more)

    monkeypatch.setattr(live.helper, "ask", ask)
    jobs = [await live.submit(user="alice") for _ in range(6)]
    await goes_on(live, "bob")
    await pass_by(live, 120)
    await goes_on(live, "bob")
    assert paused(live) == set() and asked_for(live, jobs) == 0
    assert {live.job(job).state for job in jobs} == {"waiting"}
    assert os.strerror(number) in (await live.manager.explain(jobs[0]))["now"]
    monkeypatch.undo()
    await pass_by(live, 120)
    assert {f"ejb-{job}.0" for job in jobs} <= {one.name for one in live.batch.live()}
    assert live.acted_as_others() == []


async def test_a_user_that_is_removed_while_a_job_of_it_runs_keeps_no_other_waiting(
    live: ManyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ejb-as` refuses the name from then on: whatever its job needs fails, until the batch system ends it."""
    live.batch.free = 4
    runs, waits = await live.submit(user="alice", walltime_s=100.0), await live.submit(user="alice")
    await live.poll(1)
    await live.begin(f"{runs}.1")
    plain = live.helper.ask

    def ask(user: str, verb: str, **more: Any) -> dict[str, Any]:
        if user == "alice":
            raise EjbError(Code.FORBIDDEN, "ejb-as does not act for alice: there is no such user")
        return plain(user, verb, **more)

    monkeypatch.setattr(live.helper, "ask", ask)
    late = await live.submit(user="alice")
    await goes_on(live, "bob")
    await pass_by(live, 60)
    assert "ejb-as does not act for alice: there is no such user" in (await live.manager.explain(late))["now"]
    live.batch.end(f"ejb-{runs}.1", BatchState.FAILED, 1)
    for job in (runs, waits, late):
        await live.manager.cancel(job, "root")
    await pass_by(live, 400, 20)
    await goes_on(live, "bob")
    assert paused(live) == set() and live.manager.poller.error == ""
    assert {live.job(job).state for job in (runs, waits, late)} == {"cancelled"}


async def test_why_a_job_is_not_cancelled_yet_is_told(live: ManyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account that has no shell any more: nothing is done for it."""

    async def refused(identity: Identity, ids: Sequence[str]) -> None:
        raise BatchError("ejb-as does not act for alice: no shell", transient=False)

    job = await live.submit(user="alice")
    await live.poll()
    with monkeypatch.context() as now:
        now.setattr(live.batch, "cancel", refused)
        await live.manager.cancel(job, "root")
        await live.act()
        assert "could not be cancelled yet: ejb-as does not act for alice" in (await live.manager.explain(job))["now"]
    await pass_by(live, 60)
    assert live.job(job).state == "cancelled" and "yet" not in (await live.manager.explain(job))["now"]


async def test_a_batch_system_that_answers_several_users_with_nothing_is_left_alone_by_all(live: ManyWorld) -> None:
    users = ["alice", "bob", "carol", "dave"]
    live.batch.trouble.update(dict.fromkeys(users, KILLED))
    for _ in range(3):
        for user in users:
            await live.submit(user=user)
    await pass_by(live, 60)
    assert "" in paused(live)
    live.batch.trouble.clear()
    await pass_by(live, 180)
    assert paused(live) == set()
    assert len(live.batch.live()) == 12, "nothing is lost or doubled"
    resumed = live.store.read_sync(lambda s: list(s.scalars(select(Event.data).where(Event.kind == "queue.resumed"))))
    assert {event["whose"] for event in resumed} >= {""}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ["submit", "find", "cancel", "waited_for", "update", "set_aside"])
async def test_a_session_that_does_not_answer_keeps_no_other_user_from_anything(live: ManyWorld, what: str) -> None:
    """Mallory's commands never end. Meanwhile all goes on for bob: what is due with them, and what comes later."""
    live.executor.patience_s = 0.2
    kinds = {"cancel": IntentKind.CANCEL, "waited_for": IntentKind.END, "set_aside": IntentKind.ASIDE}
    jobs = {user: await live.submit(user=user) for user in ("mallory", "bob")}
    plain, silent, asked = getattr(live.batch, what), asyncio.Event(), []

    async def hangs(identity: Identity, *given: Any, **named: Any) -> Any:
        asked.append(identity.user)
        if identity.user == "mallory":
            await silent.wait()
            raise BatchError("ejb-as does nothing for mallory now", transient=True, of_account=True)
        return await plain(identity, *given, **named)

    setattr(live.batch, what, hangs)
    if what == "find":
        for user in jobs:
            live.batch.trouble[user] = KILLED
            await live.submit(user=user)
        await live.poll(5)
    elif what == "submit":
        jobs = {user: await live.submit(user=user) for user in jobs}
    elif what == "update":
        for user, job in jobs.items():
            await live.manager.hold(job, user)
    else:
        for job in jobs.values():
            await live.store.write(lambda s, job=job: wanted(live, s, kinds[what], job))  # type: ignore[misc]
    await soon(live, lambda: {"mallory", "bob"} <= set(asked) and live.executor._left.keys() == {"mallory"})
    live.batch.trouble.clear()
    count = asked.count("mallory")
    jobs = {user: await live.submit(user=user) for user in jobs}
    await soon(live, lambda: f"ejb-{jobs['bob']}.0" in {one.name for one in live.batch.live()})
    assert asked.count("mallory") == count, "nothing more is begun for that user"
    assert live.executor._left.keys() <= {"mallory", "bob"}
    silent.set()
    setattr(live.batch, what, plain)
    live.executor.patience_s = 60.0
    await pass_by(live, 120)
    assert f"ejb-{jobs['mallory']}.0" in {one.name for one in live.batch.live()} and not live.executor._left
    assert len({one.name for one in live.batch.live()}) == len(live.batch.live()), "nothing is doubled"


async def soon(live: ManyWorld, condition: Callable[[], bool]) -> None:
    """Pass after pass, none of which waits for mallory."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await live.act(1)


def wanted(live: ManyWorld, session: Session, kind: IntentKind, job: str) -> None:
    subjob = session.scalars(select(Subjob).where(Subjob.job_id == job)).one()
    add_intent(live.manager.world.context(session), kind, job, subjob=subjob)


async def test_files_of_one_user_that_do_not_come_cost_no_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended is told by exit files: those of a user whose session does not answer are left out."""
    released = threading.Event()

    def read(path: Path, most: int) -> tuple[bytes, float]:
        if "mallory" in path.parts:
            released.wait(60)
        return b"0\n", 7.0

    paths = {str(at): Path("/", user, str(at)) for at, user in enumerate(["mallory", "bob", "mallory", "carol"])}
    monkeypatch.setattr(userfiles, "apart", partial(userfiles.apart, patience_s=0.5))
    found = await exit_files(paths, read, lambda path: path.parts[1])
    released.set()
    assert sorted(found) == ["1", "3"]


# -- sessions: one user's do not answer -------------------------------------------------------------------------------

_SESSION = """
import json, sys, time
user = json.loads(sys.stdin.readline())["user"]
print(json.dumps({"ok": True, "spool": f"/scratch/{user}/.ejb"}), flush=True)
for line in sys.stdin:
    while user == "mallory":
        time.sleep(0.05)
        try:
            open(sys.argv[1]).close()
        except FileNotFoundError:
            break
    print('{"ok": true}', flush=True)
"""


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Helper]:
    """As if the processes of mallory's sessions were stopped as long as there is the file `stopped`."""
    (tmp_path / "stopped").touch()
    made = Helper(
        Path(), [sys.executable, "-IS", "-c", _SESSION, str(tmp_path / "stopped")], "/scratch/%u/.ejb", sessions=8
    )
    yield made
    (tmp_path / "stopped").unlink(missing_ok=True)
    made.close()


@pytest.mark.slow
def test_sessions_that_one_user_has_stopped_are_a_part_of_all_and_not_asked_again_at_once(
    helper: Helper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(20) as threads:
        waiting = [threads.submit(helper.ask, "mallory", "prepare", answer_s=2.0) for _ in range(20)]
        assert [helper.ask(user, "prepare")["ok"] for user in ("alice", "bob", "carol")] == [True] * 3
        failed = [one.exception(timeout=180) for one in waiting]
    assert sum(isinstance(error, NoAnswer) for error in failed) >= 1
    assert all(isinstance(error, NoAnswer | UsersSessionsAway) for error in failed), failed
    with pytest.raises(UsersSessionsAway, match=r"tried again in \d+ s"):
        helper.ask("mallory", "prepare")
    assert helper.ask("alice", "prepare")["ok"]
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + sessions.SILENT_S[0])
    monkeypatch.setattr(sessions, "time", later)
    (tmp_path / "stopped").unlink()
    assert helper.ask("mallory", "prepare")["ok"] and not helper._silent and not helper._at_work


@pytest.mark.slow
async def test_requests_that_wait_for_one_users_sessions_keep_no_other_users_from_a_thread(
    helper: Helper, tmp_path: Path
) -> None:
    waiting = [asyncio.create_task(helper.asked("mallory", "prepare", answer_s=180.0)) for _ in range(40)]
    await asyncio.sleep(0.2)
    assert [(await helper.asked(user, "prepare", answer_s=60.0))["ok"] for user in ("alice", "bob")] == [True] * 2
    assert not any(task.done() for task in waiting), "mallory's still wait"
    (tmp_path / "stopped").unlink()
    assert all(answer["ok"] for answer in await asyncio.wait_for(asyncio.gather(*waiting), 180))
    assert not helper._asked


def test_no_more_sessions_without_work_are_kept_than_are_bounded_and_the_latest_are(tmp_path: Path) -> None:
    argv = [sys.executable, "-IS", "-c", _SESSION, str(tmp_path / "stopped")]
    few = Helper(Path(), argv, "/scratch/%u/.ejb", sessions=1)
    try:
        for user in ("alice", "bob", "carol", "bob"):
            assert few.ask(user, "prepare")["ok"]
        first = {name: some[0] for name, some in few._idle.items()}
        assert few.ask("dave", "prepare")["ok"]
        assert few._idle == {"bob": [first["bob"]], "dave": few._idle["dave"]}
    finally:
        few.close()


def test_an_account_is_looked_at_again_however_busy_its_session_is(
    helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have expired meanwhile, or have other groups, or be gone and its number another user's."""
    assert helper.ask("alice", "prepare")["ok"]
    (first,) = helper._idle["alice"]
    now = time.monotonic()
    for seconds in (5, 10, 15, 20, 25, 30):
        later = SimpleNamespace(monotonic=lambda at=now + seconds: at)
        monkeypatch.setattr(sessions, "time", later)
        assert helper.ask("alice", "prepare")["ok"] and helper._idle["alice"] == [first]
    monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: now + sessions.LASTS_S + 1))
    first.used_s = now + sessions.LASTS_S
    assert helper.ask("alice", "prepare")["ok"] and first not in helper._idle["alice"]


def test_what_keeps_one_users_sessions_is_no_fault_of_the_queue(tmp_path: Path) -> None:
    slurm = batch(Asked(UsersSessionsAway(ME, "they are stopped")), tmp_path)
    with pytest.raises(BatchError) as failed:
        asyncio.run(slurm.submit(Identity(ME), request()))
    assert failed.value.of_account and failed.value.transient and isinstance(failed.value, EjbError)
