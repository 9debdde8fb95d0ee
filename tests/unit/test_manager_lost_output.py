"""Output that its lead could not bring, and a script that it could not begin: what becomes of the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

SCRIPT: dict[str, Any] = {"kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/bash\nsrun ./heat\n"}
OWN: dict[str, Any] = {"own": True}


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def ended(live: LiveWorld, code: int, fails: dict[str, Any]) -> str:
    """A command whose ranks end with `code`, and whose lead fails to hand in the output."""
    live.batch.free = 0
    job = await live.submit(engine="none")
    worker = await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    worker.fail["unlead"] = fails
    await worker.finish_ranks(1, code)
    await live.work()
    return job


@pytest.mark.sampled(2)
@pytest.mark.parametrize("code", [0, 3])
async def test_a_job_whose_output_ejb_could_not_bring_is_what_its_program_made_it_and_says_where_it_is(
    live: LiveWorld, code: int
) -> None:
    """It is tried again for ten minutes, on J0 alone."""
    job = await ended(live, code, OWN)
    ended_s = live.clock.now
    while live.job(job).state == "ending":
        await live.poll(20)
        await live.work()
        assert live.clock.now < ended_s + 800
    row = live.job(job)
    assert live.clock.now >= ended_s + 600, live.events(job)[-8:]
    assert 3 < sum(kind == "unlead" for kind, _ in live.workers[f"{job}.0"].done) < 9
    assert (row.state, row.exit_code) == ("failed" if code else "completed", code)
    assert f"is kept in {live.manager.world.spool.job_dir(job)}" in row.reason
    assert "output.lost" in live.kinds(job)
    assert not code or "Exited with exit code 3; unlead failed; " in row.reason


@pytest.mark.sampled(3)
@pytest.mark.parametrize("at_fault", ["lead", "unlead"])
@pytest.mark.parametrize("code", [0, 3])
async def test_output_that_could_not_be_brought_is_brought_once_the_spool_has_room(
    live: LiveWorld, code: int, at_fault: str
) -> None:
    job = await ended(live, code, OWN)
    worker = live.workers[f"{job}.0"]
    worker.fail = {at_fault: OWN}
    for _ in range(4):
        await live.poll(6)
        await live.work()
    assert live.job(job).state == "ending"
    worker.fail.clear()
    for _ in range(4):
        await live.poll(30)
        await live.work()
    row = live.job(job)
    assert (row.state, row.exit_code) == ("failed" if code else "completed", code), row.reason
    assert "is kept in" not in row.reason and "output.lost" not in live.kinds(job)
    again = [payload for kind, payload in worker.done if kind == "lead"][1:]
    assert again and all(told["script"] is None and told["append"] for told in again)
    assert [told["run"] for told in again] == list(range(2, len(again) + 2))


async def test_a_job_whose_own_output_file_cannot_be_written_has_not_completed(live: LiveWorld) -> None:
    row = live.job(await ended(live, 0, {}))
    assert (row.state, row.exit_code) == ("failed", 181)


async def test_a_script_that_cannot_begin_for_want_of_ejbs_own_files_begins_later(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(engine="none", **SCRIPT)
    worker = await live.arrive(f"{job}.0")
    worker.fail["lead"] = OWN
    await live.poll(1)
    await worker.work()
    row = live.job(job)
    assert (row.state, row.setbacks) == ("running", 1), row.reason
    worker.fail.clear()
    await live.work()
    await worker.report("script-exit", run=live.job(job).script_run, code=0)
    await live.work()
    row = live.job(job)
    assert (row.state, row.script_run) == ("completed", 1), row.reason


async def test_a_script_that_never_can_has_failed_and_says_why(live: LiveWorld) -> None:
    live.batch.free = 0
    job = await live.submit(engine="none", **SCRIPT)
    worker = await live.arrive(f"{job}.0")
    worker.fail["lead"] = OWN
    for _ in range(8):
        await live.poll(1)
        await live.work()
    row = live.job(job)
    assert row.state == "failed" and "given up after 6 attempts" in row.reason
