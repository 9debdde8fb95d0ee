"""Submissions that wait are stored together, and each is answered for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.manager.facts.admitted import Admission
from ejbd.manager.facts.batchjob import output
from ejbd.manager.facts.context import Context
from ejbd.manager.jobspec import JobRequest, JobSpec, Overrides, Reading, read
from ejbd.manager.submission import intake, queues, submitting
from ejbd.manager.submission.admission import admit
from ejbd.manager.submission.intake import Accepted
from ejbd.manager.submission.together import Together
from ejbd.store.models import Event, IdempotencyKey, Job
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql

MANY = 120


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def job(live: LiveWorld, name: str = "heat") -> Reading:
    overrides = Overrides(ntasks="16", time="10", name=name, engine="application")
    return read(JobRequest(cwd=str(live.folder), command=("./heat",), overrides=overrides))


async def all_of(live: LiveWorld, submissions: Sequence[tuple[str, str | None, str]]) -> list[Accepted | BaseException]:
    """Name, key and body of each, all at once."""
    asked = (live.manager.submit(job(live, name), "ada", key, body) for name, key, body in submissions)
    return await asyncio.gather(*asked, return_exceptions=True)


def gather_first(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Answer no question of those called `name` before MANY were asked: how fast they come is the machine's to say."""
    drain, begun = Together._drain, False

    async def drained(self: Together[Any, Any]) -> None:
        nonlocal begun
        if self._name == name and not begun:
            begun = True
            async with asyncio.timeout(60):
                while sum(map(len, self._waiting.values())) < MANY:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        await drain(self)

    monkeypatch.setattr(Together, "_drain", drained)


def stored(live: LiveWorld) -> dict[str, str]:
    return live.store.read_sync(lambda s: {row.id: row.name for row in s.execute(select(Job.id, Job.name))})


async def test_a_flood_costs_few_transactions_and_everybody_has_a_job(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.poll()
    gather_first(monkeypatch, "intake")
    commits = 0

    def counted(_: Any) -> None:
        nonlocal commits
        commits += 1

    event.listen(live.store._writer, "commit", counted)
    try:
        answers = await all_of(live, [(f"heat{n}", f"key-{n}", f"body-{n}") for n in range(MANY)])
    finally:
        event.remove(live.store._writer, "commit", counted)
    assert commits < MANY / 2
    jobs = stored(live)
    for n, answer in enumerate(answers):
        assert isinstance(answer, Accepted) and answer.created and jobs[answer.id] == f"heat{n}"
    assert len(jobs) == MANY
    events = live.store.read_sync(lambda s: [e.job_id for e in s.scalars(select(Event)) if e.kind == "job.received"])
    assert sorted(filter(None, events)) == sorted(jobs)


async def test_a_fault_in_one_is_not_the_others(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await live.poll()

    def taken(ctx: Context, one: Reading, user: str) -> Admission:
        if one.spec.name == "faulty":
            raise RuntimeError("fault")
        return admit(ctx, one, user)

    monkeypatch.setattr(intake, "admit", taken)
    answers = await all_of(live, [("faulty" if n == 7 else "heat", None, "") for n in range(20)])
    assert isinstance(answers[7], RuntimeError)
    assert all(isinstance(answer, Accepted) for n, answer in enumerate(answers) if n != 7)
    assert list(stored(live).values()) == ["heat"] * 19


async def test_the_same_key_among_those_that_are_stored_together_is_one_job(live: LiveWorld) -> None:
    await live.poll()
    bodies = ["body", "body", "another body"]
    *answers, other = await all_of(live, [("heat", "k", body) for body in bodies] + [("heat", "other", "body")])
    # Threads look at what is submitted: which of the two bodies has the key is theirs to say.
    accepted = {body: one for body, one in zip(bodies, answers, strict=True) if isinstance(one, Accepted)}
    [(won, first)] = accepted.items()
    for body, one in zip(bodies, answers, strict=True):
        same = isinstance(one, Accepted) and one.id == first.id
        assert same if body == won else isinstance(one, EjbError) and one.code is Code.KEY_REUSED
    assert isinstance(other, Accepted) and other.id != first.id
    later = await live.manager.submit(job(live), "ada", "k", won)
    assert (later.id, later.created, later.elastic, later.why) == (first.id, False, first.elastic, first.why)
    assert len(stored(live)) == 2
    assert live.store.read_sync(lambda s: s.query(IdempotencyKey).count()) == 2


async def test_what_was_answered_is_answered_again_though_it_would_be_refused_now(live: LiveWorld) -> None:
    await live.poll()
    first = await live.manager.submit(job(live), "ada", "k", "body")
    gone = read(
        JobRequest(
            cwd=str(live.folder),
            command=("./heat",),
            overrides=Overrides(ntasks="16", time="10", engine="application", output="no/such/folder/out"),
        )
    )
    assert (await live.manager.submit(gone, "ada", "k", "body")).id == first.id
    with pytest.raises(EjbError, match="the output cannot be written"):
        await live.manager.submit(gone, "ada", "new", "body")


async def test_a_commit_that_fails_is_told_to_all_and_the_next_ones_go_on(live: LiveWorld) -> None:
    await live.poll()

    def full(_: Any) -> None:
        raise OSError("disk full")

    event.listen(live.store._writer, "commit", full)
    try:
        answers = await all_of(live, [("heat", f"key-{n}", "") for n in range(10)])
    finally:
        event.remove(live.store._writer, "commit", full)
    assert all(isinstance(answer, EjbError) and answer.code is Code.STORE for answer in answers)
    assert stored(live) == {}
    assert all(isinstance(one, Accepted) for one in await all_of(live, [("heat", f"key-{n}", "") for n in range(10)]))
    assert len(stored(live)) == 10


async def test_settings_that_were_changed_hold_for_the_next_submission(live: LiveWorld) -> None:
    """They are kept in memory, and not for longer than they hold."""
    await live.poll()
    for elasticity in ("off", "on", "off", "on"):
        await live.manager.set_queue("batch", {"elasticity": elasticity}, "root")
        assert (await live.manager.submit(job(live), "ada", None, "")).elastic is (elasticity == "on")


async def test_a_change_of_settings_that_was_undone_does_not_hold(live: LiveWorld) -> None:
    await live.poll()

    def fails(session: Session) -> None:
        ctx = live.manager.world.context(session)
        queues.set_queue(ctx, "batch", {"elasticity": "off"}, "root")
        ctx._queues = None
        assert ctx.queue_settings("batch").elasticity == "off"
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await live.store.write(fails)
    assert (await live.manager.submit(job(live), "ada", None, "")).elastic


async def test_a_flood_is_looked_at_together_and_what_is_wrong_with_one_is_told_to_him(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.poll()
    gather_first(monkeypatch, "submissions")
    looks, reads = 0, 0
    check, read_from = output.check_output, live.store._read

    def looked(spec: JobSpec, user: str) -> None:
        nonlocal looks
        looks += 1
        check(spec, user)

    def counted(fn: Any) -> Any:
        nonlocal reads
        reads += 1
        return read_from(fn)

    def taken(ctx: Context, one: Reading, user: str) -> Admission:
        if one.spec.name == "faulty":
            raise RuntimeError("fault")
        return admit(ctx, one, user)

    monkeypatch.setattr(output, "check_output", looked)
    monkeypatch.setattr(live.store, "_read", counted)
    monkeypatch.setattr(submitting, "admit", taken)
    names = ["faulty" if n == 7 else "wide" if n == 9 else "heat" for n in range(MANY)]
    asked = [job(live, name) for name in names]
    asked[9] = read(
        JobRequest(cwd=str(live.folder), command=("./heat",), overrides=Overrides(ntasks="9999", time="10"))
    )
    answers = await asyncio.gather(
        *(live.manager.submit(one, "ada", f"key-{n}", "") for n, one in enumerate(asked)), return_exceptions=True
    )
    assert reads < MANY / 4 and looks < MANY / 4
    assert isinstance(answers[7], RuntimeError)
    assert isinstance(answers[9], EjbError) and "processors are more than" in answers[9].message
    assert sum(isinstance(answer, Accepted) for answer in answers) == MANY - 2 == len(stored(live))


async def test_a_folder_that_was_made_since_the_last_look_is_seen(live: LiveWorld) -> None:
    await live.poll()
    spec = replace(job(live).spec, output="out/%j")
    outputs = output.Outputs()
    told = await asyncio.gather(*(outputs.check(spec, "ada") for _ in range(3)), return_exceptions=True)
    assert [isinstance(one, EjbError) for one in told] == [True] * 3
    (live.folder / "out").mkdir()
    await outputs.check(spec, "ada")
