"""Whether a job is elastic, and why: one answer, for whoever asks."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from ejbd.batch.base import Identity, SubmitRequest
from ejbd.errors import BatchError, Code, EjbError
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.jobspec import JobRequest, JobSpec, Overrides, Reading, read
from ejbd.manager.submission import admission
from ejbd.store.models import Job
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


SCRIPT = "#!/bin/sh\n#SBATCH -n 16 -t 10\n{}\nsrun ./heat\n"


def reading(live: LiveWorld, lines: str = "", script: str | None = None, **overrides: Any) -> Reading:
    text = SCRIPT.format(lines) if script is None else script
    return read(JobRequest(cwd=str(live.folder), script=text, overrides=Overrides(engine="application", **overrides)))


def stored(live: LiveWorld, id: str) -> JobSpec:
    return live.store.read_sync(lambda s: JobWorld(live.manager.world.context(s), live.job(id)).spec)


@pytest.mark.parametrize(
    ("lines", "elastic", "why", "notes"),
    [
        ("", True, "elasticity is on in queue batch", 0),
        # EJB does without it: the command line over HTTP said elastic, the manager asked directly said passed through.
        ("#SBATCH --acctg-freq=30", True, "elasticity is on in queue batch", 1),
        ("#SBATCH --licenses=a:1", False, "line 3: an elastic job cannot keep --licenses", 0),
        ("make -j", True, "elasticity is on in queue batch", 0),
    ],
)
async def test_a_dry_run_and_a_submission_give_the_same_answer(
    live: LiveWorld, lines: str, elastic: bool, why: str, notes: int
) -> None:
    await live.poll()
    job = reading(live, lines)
    planned = await live.manager.plan(job, "ada")
    taken = await live.manager.submit(job, "ada", None, "")
    assert planned["elastic"] is taken.elastic is live.job(taken.id).elastic is elastic
    assert planned["why"] == taken.why and taken.why.startswith(why)
    assert planned["notes"] == list(taken.notes) == (await live.manager.explain(taken.id))["notes"]
    assert len([note for note in taken.notes if "is not acted on" in note]) == notes
    assert stored(live, taken.id).rigid_options == (() if elastic else ("--licenses=a:1",))


async def test_one_that_says_it_is_elastic_is_refused_where_it_cannot_be(live: LiveWorld) -> None:
    await live.poll()
    for job in (reading(live, "#SBATCH --licenses=a:1", elastic="on"), reading(live, "#SBATCH -n 1", elastic="on")):
        for ask in (live.manager.plan(job, "ada"), live.manager.submit(job, "ada", None, "")):
            with pytest.raises(EjbError) as refused:
                await ask
            assert refused.value.code is Code.UNSUPPORTED
    assert live.store.read_sync(lambda s: s.query(Job).count()) == 0


async def test_of_what_is_merely_doubted_the_user_knows_better(live: LiveWorld) -> None:
    await live.poll()
    script = "#!/bin/sh\n#SBATCH -n 16 -t 10\n./pipeline\n"
    doubted, insisted = (reading(live, script=script, elastic=word) for word in (None, "on"))
    assert doubted.refusals and all(refusal.doubt for refusal in doubted.refusals)
    assert not (await live.manager.submit(doubted, "ada", None, "")).elastic
    assert (await live.manager.submit(insisted, "ada", None, "")).elastic


async def test_what_is_passed_through_stays_so_when_its_queue_changes_between_the_look_and_the_commit(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live.poll()
    await live.manager.set_queue("batch", {"elasticity": "off"}, "root")
    checked = live.manager.entrance.submissions._check

    async def changed(spec: JobSpec, user: str) -> tuple[str, ...]:
        await live.manager.set_queue("batch", {"elasticity": "on"}, "root")
        return await checked(spec, user)

    monkeypatch.setattr(live.manager.entrance.submissions, "_check", changed)
    taken = await live.manager.submit(reading(live), "ada", None, "")
    assert not taken.elastic and taken.why == "elasticity is off in queue batch"
    assert (await live.manager.submit(reading(live), "ada", None, "")).elastic


async def test_the_list_of_queues_says_what_a_job_would_be_told(live: LiveWorld) -> None:
    await live.poll()
    live.batch.free = live.batch.total
    await live.poll(1)
    for changes in ({"elasticity": "off"}, {"elasticity": "on"}, {"elasticity": "auto", "auto_queue_length": 5}):
        shown = (await live.manager.set_queue("batch", changes, "root"))["elastic_now"]
        assert shown is (await live.manager.plan(reading(live), "ada"))["elastic"], changes


async def test_one_that_has_to_wait_until_the_queue_is_longer_is_told_so(live: LiveWorld) -> None:
    live.batch.free = 4
    await live.poll(1)
    found = await live.manager.set_queue("batch", {"elasticity": "auto", "auto_queue_length": 5}, "root")
    plan = await live.manager.plan(reading(live), "ada")
    assert plan["elastic"] and not found["elastic_now"]
    assert plan["why"].startswith("0 jobs wait in queue batch; elasticity begins at 5; until then it waits as it is")


def test_nobody_else_asks_a_queue_whether_it_makes_jobs_elastic() -> None:
    """The settings' words are compared where jobs arrive and where they wait, and one name stands for each answer."""
    package = Path(admission.__file__).parents[2]
    asks = re.compile(r"Elasticity\.(OFF|ON|AUTO)\b|def (settle|elasticity|make_elastic|carried)\(")
    found = {str(file.relative_to(package)) for file in package.rglob("*.py") if asks.search(file.read_text())}
    assert found == {"manager/submission/admission.py", "manager/facts/auto.py", "config/queues.py"}


async def test_a_specification_is_parsed_once(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once by a transaction, however often it is asked for; once by what prepares and makes a submission."""
    await live.poll()
    parsed: list[str] = []
    parse = JobSpec.from_json.__func__  # type: ignore[attr-defined]

    def counted(cls: type[JobSpec], data: dict[str, Any]) -> JobSpec:
        parsed.append(data["name"])
        spec: JobSpec = parse(cls, data)
        return spec

    monkeypatch.setattr(JobSpec, "from_json", classmethod(counted))
    job = await live.submit()
    assert live.batch.of(f"ejb-{job}.0").state == "pending" and len(parsed) == 1
    world = live.store.read_sync(lambda s: JobWorld(live.manager.world.context(s), live.job(job)))
    assert world.spec is world.spec and len(parsed) == 2


REFUSED = "Slurm did not take the job: Please name your project with -A."


async def test_what_the_batch_system_would_refuse_is_refused_at_once_of_an_elastic_job_too(live: LiveWorld) -> None:
    """`-C nosuch` made a job, which failed once its J0 was refused."""
    await live.poll()
    taken = await live.manager.submit(reading(live), "ada", "key", "digest")
    live.batch.refuse = BatchError(REFUSED, transient=False)
    job = reading(live, "#SBATCH --gres=tpu:1")
    for ask in (live.manager.plan(job, "ada"), live.manager.submit(job, "ada", None, "")):
        with pytest.raises(EjbError) as refused:
            await ask
        assert refused.value.code is Code.BATCH_REFUSED and REFUSED in refused.value.message
    assert live.store.read_sync(lambda s: s.query(Job).count()) == 1
    live.manager.entrance.submissions._answers.clear()
    assert (await live.manager.submit(reading(live), "ada", "key", "digest")).id == taken.id  # an answer stays


async def test_an_elastic_job_is_taken_unchecked_while_the_batch_system_is_away(live: LiveWorld) -> None:
    await live.poll()
    live.batch.refuse = BatchError("the batch system does not answer", transient=True)
    taken = await live.manager.submit(reading(live), "ada", None, "")
    assert taken.elastic and any(note.startswith("not checked by the batch system") for note in taken.notes)


async def test_of_a_thousand_jobs_of_one_shape_the_batch_system_is_shown_one(live: LiveWorld) -> None:
    await live.poll()
    for lines in ("", "", "#SBATCH -J other", "#SBATCH -t 20", "#SBATCH -A chem"):
        assert (await live.manager.submit(reading(live, lines), "ada", None, "")).elastic
    assert sum(call.startswith("check") for call in live.batch.calls) == 3


async def test_a_crowd_of_submissions_waits_neither_for_its_turn_nor_twice_for_one_answer(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal ones of a user share the question that is under way; others are taken unchecked after a short wait."""
    await live.poll()
    live.settings.limits.check_wait_s = 0.01
    asked: list[float | None] = []
    begun, answer = asyncio.Event(), asyncio.Event()

    async def check(identity: Identity, request: SubmitRequest, timeout_s: float) -> None:
        asked.append(request.walltime_s)
        if len(asked) == live.settings.limits.submit_concurrency:
            begun.set()
        await answer.wait()

    monkeypatch.setattr(live.batch, "check", check)
    shapes = range(10, 10 + live.settings.limits.submit_concurrency)
    first = [
        asyncio.create_task(live.manager.submit(reading(live, f"#SBATCH -t {minutes}"), "ada", None, ""))
        for minutes in (*shapes, *shapes)
    ]
    await asyncio.wait_for(begun.wait(), 30)
    late = await live.manager.submit(reading(live, "#SBATCH -t 99"), "ada", None, "")
    assert late.elastic and any("no turn" in note for note in late.notes), late.notes
    answer.set()
    for one in await asyncio.wait_for(asyncio.gather(*first), 30):
        assert one.elastic and not any("checked" in note for note in one.notes)
    assert len(asked) == len(shapes), "each shape was shown once"
    again = await live.manager.submit(reading(live, "#SBATCH -t 99"), "ada", None, "")
    assert not any("checked" in note for note in again.notes) and len(asked) == len(shapes) + 1


async def test_a_script_without_a_walltime_takes_its_queues_and_one_without_an_end_is_passed_through(
    live: LiveWorld,
) -> None:
    unsaid, endless = ("#!/bin/sh\n#SBATCH -n 16" + time + "\nsrun ./heat\n" for time in ("", " -t UNLIMITED"))
    await live.poll()
    passed = await live.manager.submit(reading(live, script=unsaid), "ada", None, "")
    assert not passed.elastic and "none is given" in passed.why
    live.batch.default_walltime_s = 600.0
    await live.poll()
    planned = await live.manager.plan(reading(live, script=unsaid), "ada")
    taken = await live.manager.submit(reading(live, script=unsaid), "ada", None, "")
    assert taken.elastic and taken.why == planned["why"]
    assert "it asks for no walltime and takes the queue's, 00:10:00" in taken.why, taken.why
    assert live.job(taken.id).walltime_s == 600.0
    assert not (await live.manager.submit(reading(live, script=endless), "ada", None, "")).elastic
    off = await live.manager.submit(reading(live, script=unsaid, elastic="off"), "ada", None, "")
    assert stored(live, off.id).walltime_s == 0.0  # sbatch gives it what it has by default
