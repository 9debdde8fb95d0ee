"""Many submissions at once: each is durable at once, and goes to the batch system in its turn."""

from __future__ import annotations

import itertools
import secrets
from pathlib import Path

import pytest
from sqlalchemy import func, select

from ejbd.manager.jobspec import JobKind, JobSpec, Reading
from ejbd.store.models import Intent, Job
from tests.fakes.live import LiveWorld
from tests.fakes.port import new_store

pytestmark = pytest.mark.slow


def spec(live: LiveWorld) -> JobSpec:
    given = {"name": "heat", "kind": JobKind.COMMAND, "argv": ("./heat",), "processes": 16, "walltime_s": 100.0}
    return JobSpec(**given, cwd=str(live.folder), output="ejb-%j.out", engine="application")  # type: ignore[arg-type]


async def test_a_flood_is_taken_up_as_the_batch_system_may_be_given_it(tmp_path: Path) -> None:
    store = new_store(tmp_path / "ejbd.sqlite")
    try:
        live = LiveWorld(tmp_path, store)
        await live.poll()
        job = spec(live)
        ids = [(await live.manager.submit(Reading(job), "ada", f"key-{n}", "hash")).id for n in range(100)]
        while await store.write(live.manager.acting.receiving.receive):
            pass
        planned = await store.read(lambda s: s.scalar(select(func.count()).select_from(Intent)))
        assert planned == 64, "two passes of the executor"
        assert "in its turn" in (await live.manager.explain(ids[-1]))["now"]
        await live.poll()
        assert live.job(ids[-1]).state == "received", "a poll does not push in"
        for _ in range(60):
            live.clock.now += 1
            await live.act()
            if len(live.batch.jobs) == 100:
                break
        sent = [job.name.split(".")[0].removeprefix("ejb-") for job in live.batch.jobs.values()]
        assert sorted(sent) == sorted(ids), "each once"
    finally:
        store.close()


async def test_a_job_number_that_comes_twice_is_drawn_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path / "ejbd.sqlite")
    try:
        live = LiveWorld(tmp_path, store)
        await live.poll()
        drawn = itertools.chain(["0badcafe", "0badcafe"], (f"a{n:07x}" for n in itertools.count(1)))
        monkeypatch.setattr(secrets, "token_hex", lambda _: next(drawn))
        for n in range(2):
            await live.manager.submit(Reading(spec(live)), "ada", f"key-{n}", "hash")
        assert await store.read(lambda s: set(s.scalars(select(Job.id)))) == {"0badcafe", "a0000001"}
    finally:
        store.close()
