"""The mails of elastic jobs: one of each kind for the whole job, never twice, by the site's own program."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from ejbd.batch.base import Mailing
from ejbd.core.view import BatchState
from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, Reading, read
from ejbd.manager.jobspec.mail import Mail
from ejbd.manager.service.mailer import NOTED_EVENTS, Mailer, due
from ejbd.manager.service.news import newest_event
from ejbd.store import marks
from ejbd.store.models import Job
from ejbd.store.store import Store
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_arrays import end, settle

pytestmark = pytest.mark.sql

ALL = Mail(("BEGIN", "END", "FAIL", "REQUEUE"), "ada@example.org")


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    """Its mails go into a file, a line each."""
    world = LiveWorld(tmp_path, store)
    use(world, f'printf "%s|" "$@" >> {tmp_path}/mails; echo >> {tmp_path}/mails')
    return world


def use(live: LiveWorld, does: str) -> None:
    program = live.folder / "mailprog"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    live.settings.mail_program = str(program)


async def mailer(live: LiveWorld) -> Mailer:
    """That of a daemon which begins now."""
    found = Mailer(live.settings, live.store, live.batch, live.daemon_clock)
    await found.begin()
    return found


async def sent(live: LiveWorld, by: Mailer) -> list[tuple[str, str]]:
    """Recipient and subject of all mails so far."""
    while await by._look():
        pass
    file = live.folder / "mails"
    lines = file.read_text().splitlines() if file.exists() else []
    assert all(line.startswith("-s|") for line in lines)
    return [(line.split("|")[2], line.split("|")[1]) for line in lines]


async def moved(live: LiveWorld, **spec: Any) -> str:
    """A job that runs on a subjob and on J0 after it."""
    live.batch.free = 8
    await live.poll()
    job = await live.submit(**spec)
    await live.poll()
    await live.begin(f"{job}.1")
    await live.poll(1)
    await live.work()
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    await live.poll(1)
    await live.work()
    return job


async def test_events_without_a_mail_are_read_once_and_not_at_the_next_start(live: LiveWorld) -> None:
    post = await mailer(live)
    job = await live.submit()

    def happen(session: Session) -> None:
        for _ in range(NOTED_EVENTS):
            add_event(session, EventKind.BATCH_RESTS, live.clock.now)

    await live.store.write(happen)
    assert await sent(live, post) == []
    again = await mailer(live)
    assert again._after == post._after == live.store.read_sync(newest_event)
    assert job and live.store.read_sync(lambda s: due(s, 0))[1] == again._after


async def test_a_job_of_two_subjobs_sends_one_of_each_kind(live: LiveWorld) -> None:
    post = await mailer(live)
    job = await moved(live, mail=ALL)
    began = await sent(live, post)
    assert [(to, words.partition(",")[0]) for to, words in began] == [
        ("ada@example.org", f"EJB Job_id={job} Name=heat Began")
    ]
    assert len(live.subjobs(job)) >= 2 and len(live.epochs(job)) >= 2
    worker = next(worker for worker in live.workers.values() if live.epochs(job)[-1].number in worker.ranks)
    await worker.finish_ranks(live.epochs(job)[-1].number)
    for _ in range(2):
        await live.poll(1)
        await live.work()
    assert live.job(job).state == "completed"
    _, (to, words) = await sent(live, post)
    assert to == "ada@example.org"
    assert words.startswith(f"EJB Job_id={job} Name=heat Ended, Run time 00:00:0")
    assert words.endswith(", COMPLETED, ExitCode 0")
    assert [data["about"] for kind, data in live.events(job) if kind == "job.mail"] == ["BEGIN", "END"]
    assert not any("--mail" in word for request in live.batch.requests.values() for word in request.options)


async def test_a_daemon_that_was_killed_at_any_point_sends_none_twice(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await mailer(live)
    job = await moved(live, mail=ALL)
    assert len(await sent(live, first)) == 1
    assert len(await sent(live, await mailer(live))) == 1  # the next daemon
    await live.manager.cancel(job, "ada")
    await live.poll(1)
    await live.work()
    await live.poll(1)
    # Killed after it is put down that the mail is about to be sent, and before it is.
    after = live.store.read_sync(lambda s: marks.mailed(s))
    killed = await mailer(live)

    async def never(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(killed, "_send", never)
    with pytest.raises(KeyboardInterrupt):
        await sent(live, killed)
    assert live.store.read_sync(lambda s: marks.mailed(s)) > after
    assert len(await sent(live, await mailer(live))) == 1


async def test_what_happened_before_there_were_mails_sends_none(live: LiveWorld) -> None:
    await moved(live, mail=ALL)
    assert await sent(live, await mailer(live)) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("FAIL",), ["Failed"]),
        (("END",), []),
        (("TIME_LIMIT",), ["Reached time limit"]),
        (("END", "FAIL", "TIME_LIMIT"), ["Reached time limit", "Failed"]),
        (("BEGIN",), ["Began"]),
    ],
)
async def test_a_job_at_its_time_limit(live: LiveWorld, kinds: tuple[str, ...], said: list[str]) -> None:
    post = await mailer(live)
    live.batch.free = 0
    job = await live.submit(engine="none", mail=Mail(kinds))
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT)
    await live.poll(1)
    await live.poll(60)
    assert live.job(job).state == "timeout"
    mails = await sent(live, post)
    assert [to for to, _ in mails] == ["ada"] * len(said)  # whose job it is
    assert [words.partition("Name=heat ")[2].partition(",")[0] for _, words in mails] == said


@pytest.mark.parametrize("tasks", [False, True])
async def test_an_array_sends_its_mails_as_one_unless_each_is_asked_for(live: LiveWorld, tasks: bool) -> None:
    post = await mailer(live)
    await live.poll()
    words = ("--array=1-2", "--mail-type=ALL" + (",ARRAY_TASKS" if tasks else ""), "--mail-user=ada@example.org")
    overrides = Overrides(ntasks="2", time="10", engine="application", options=words)
    array = (await live.manager.submit(made(live, overrides), "ada", None, "")).id
    await settle(live)
    for index in (1, 2):
        await end(live, f"{array}_{index}")
    await settle(live)
    told = sorted(words.partition(",")[0] for _, words in await sent(live, post))
    ids = [f"{array}_1", f"{array}_2"] if tasks else [array]
    assert told == sorted(f"EJB Job_id={id} Name=heat {what}" for id in ids for what in ("Began", "Ended"))


def made(live: LiveWorld, overrides: Overrides) -> Reading:
    return read(JobRequest(cwd=str(live.folder), command=("./heat",), overrides=overrides))


async def test_a_program_that_fails_or_is_missing_is_told_and_not_asked_again(live: LiveWorld) -> None:
    post = await mailer(live)
    use(live, "echo no such user >&2; exit 67")
    job = await moved(live, mail=ALL)
    assert await sent(live, post) == []
    live.settings.mail_program = "/nowhere/mail"
    await live.manager.cancel(job, "ada")
    for _ in range(3):
        await live.poll(1)
        await live.work()
    assert await sent(live, post) == []
    errors = [data["error"] for kind, data in live.events(job) if kind == "job.mail"]
    assert errors[0].endswith("ended with 67: no such user") and "is not installed" in errors[1]
    assert len(errors) == 2


async def test_a_site_without_a_program_says_so_at_the_submission(live: LiveWorld) -> None:
    live.settings.mail_program = None
    await live.poll()
    overrides = Overrides(ntasks="2", time="10", engine="application", options=("--mail-type=END",))
    job = read(JobRequest(cwd=str(live.folder), command=("./heat",), overrides=overrides))
    taken, planned = await live.manager.submit(job, "ada", None, ""), await live.manager.plan(job, "ada")
    assert list(taken.notes) == planned["notes"] and "mail_program" in taken.notes[0]
    live.batch.mails = Mailing("/bin/mail", "example.org")
    assert (await live.manager.plan(job, "ada"))["notes"] == []


async def test_a_recipient_without_a_domain_gets_that_of_the_site(live: LiveWorld) -> None:
    live.batch.mails = Mailing("/bin/mail", "example.org")
    post = await mailer(live)
    await moved(live, mail=Mail(("BEGIN",), "ada,bob@example.com"))
    assert [to for to, _ in await sent(live, post)] == ["ada@example.org,bob@example.com"]


async def test_no_users_name_becomes_an_option_of_the_program(live: LiveWorld) -> None:
    post = await mailer(live)
    job = await moved(live, mail=Mail(("BEGIN",)))
    await live.store.write(lambda session: session.execute(update(Job).where(Job.id == job).values(user="-u")))
    assert await sent(live, post) == []
    told = [data for kind, data in live.events(job) if kind == "job.mail"]
    assert [one["error"] for one in told] == ["'-u' is no address"]


async def test_a_look_that_fails_is_not_the_last(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in one: a fault of the database, or of EJB."""
    monkeypatch.setattr("ejbd.manager.service.mailer.RETRY_S", 0.01)
    post = await mailer(live)
    await moved(live, mail=ALL)
    read, faults = live.store.read, [RuntimeError("torn"), EjbError(Code.STORE, "away")]

    async def faulty(*args: Any, **more: Any) -> Any:
        if faults:
            raise faults.pop()
        return await read(*args, **more)

    monkeypatch.setattr(live.store, "read", faulty)
    running = asyncio.create_task(post.run())
    for _ in range(500):
        if (live.folder / "mails").exists():
            break
        await asyncio.sleep(0.02)
    running.cancel()
    assert not faults and "Began" in (live.folder / "mails").read_text()
