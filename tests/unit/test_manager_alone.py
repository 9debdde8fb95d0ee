"""Jobs that their J0's workers have begun by themselves, since no daemon was there: who may begin, and what is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchState
from ejbd.errors import EjbError
from ejbd.manager.hands import orders
from ejbd.store.store import Store
from tests.fakes.alone import SCRIPT, folder, order, text, waiting
from tests.fakes.live import LiveWorld, Worker

KINDS = pytest.mark.parametrize("kind", [{"engine": "none"}, SCRIPT], ids=["command", "script"])


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def begins_alone(live: LiveWorld, job: str) -> None:
    """What a worker does that finds no manager."""
    own = folder(live, job) / "own"
    own.write_text(json.dumps({"begun": {"order": order(live, job)["id"], "at_s": live.clock.now, "node": "n1"}}))
    os.link(own, folder(live, job) / "claim.json")


async def returns(live: LiveWorld, seconds: float) -> None:
    live.clock.now += seconds
    await live.restart()
    await live.poll()


# -- the order --------------------------------------------------------------------------------------------------------


@KINDS
async def test_every_j0_has_an_order_to_run_the_job_as_it_was_submitted(live: LiveWorld, kind: dict[str, Any]) -> None:
    job = await waiting(live, kind)
    found = order(live, job)
    assert found["after_s"] == 10.0, "a tenth of its time, where that is less than the setting"
    assert found["processors"] == 16 and found["cwd"] == str(live.folder)
    assert found["output"] == str(live.folder / "ejb-\x02.out"), "its number is known where it begins"
    script = text(found["script"])
    assert script == SCRIPT["script"] if kind is SCRIPT else "./heat" in script


@pytest.mark.parametrize("which", [{"signal": "B:USR1@60"}, {"walltime_s": 100.0}], ids=["signal", "never"])
async def test_what_needs_a_daemon_has_no_order(live: LiveWorld, which: dict[str, Any]) -> None:
    if "signal" not in which:
        live.settings.limits.alone_after_s = 0.0
    job = await waiting(live, SCRIPT, **which)
    assert not folder(live, job).exists()


async def test_an_order_that_cannot_be_written_keeps_no_job_from_the_queue(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_ignored: Any) -> None:
        raise EjbError("spool", "cannot write: No space left on device")  # type: ignore[arg-type]

    monkeypatch.setattr(orders, "give", full)
    job = await waiting(live, SCRIPT)
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.PENDING


# -- who begins -------------------------------------------------------------------------------------------------------


@KINDS
async def test_what_a_daemon_begins_nobody_else_can(live: LiveWorld, kind: dict[str, Any]) -> None:
    job = await waiting(live, kind)
    await live.begin(f"{job}.0")
    await live.poll()
    await live.work()
    assert live.job(job).state == "running" and live.job(job).elastic
    with pytest.raises(FileExistsError):
        begins_alone(live, job)
    assert orders.begun_s(live.manager.world.spool, job, f"{job}.0") is None


async def test_what_runs_in_a_window_is_not_begun_again_in_a_j0_that_starts_unseen(live: LiveWorld) -> None:
    job = await live.submit(engine="application")
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.poll(1)
    await live.work()
    assert live.job(job).state == "running"
    with pytest.raises(FileExistsError):
        begins_alone(live, job)


async def test_what_was_cancelled_begins_no_more(live: LiveWorld) -> None:
    job = await waiting(live, SCRIPT)
    await live.manager.cancel(job, "ada")
    with pytest.raises(FileExistsError):
        begins_alone(live, job)


async def test_workers_that_were_faster_than_the_daemon_win(live: LiveWorld) -> None:
    """They have claimed it while the daemon was on its way to begin it with them."""
    job = await waiting(live, SCRIPT)
    live.batch.start(f"ejb-{job}.0")
    await live.poll()
    worker = Worker(live, f"{job}.0", 16)
    begins_alone(live, job)
    await worker.register()
    assert await worker.work() == []
    await live.poll()
    row = live.job(job)
    assert (row.state, row.elastic, row.script_run) == ("running", False, 0)
    assert live.epochs(job) == [] and "lead.appointed" not in live.kinds(job)


async def test_a_claim_that_cannot_be_made_begins_nothing(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await waiting(live, SCRIPT)

    def broken(*_ignored: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", broken)
    with pytest.raises(EjbError, match="Input/output error"):
        orders.withdraw(live.manager.world.spool, job, f"{job}.0")


# -- what is told -----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2, by=("end",))
@KINDS
@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        (BatchState.COMPLETED, 0, ("completed", 0)),
        (BatchState.FAILED, 7, ("failed", 7)),
        (BatchState.CANCELLED, None, ("cancelled", None)),
        (BatchState.TIMEOUT, None, ("timeout", None)),
        (BatchState.NODE_FAIL, None, ("failed", None)),
    ],
)
async def test_what_began_and_ended_alone_is_told_as_sbatch_would_have(
    live: LiveWorld, kind: dict[str, Any], end: BatchState, code: int | None, told: tuple[str, int | None]
) -> None:
    job = await waiting(live, kind)
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 10
    began = live.clock.now
    begins_alone(live, job)
    live.clock.now += 50
    live.batch.end(f"ejb-{job}.0", end, code)
    await returns(live, 100_000)
    row = live.job(job)
    assert (row.state, row.exit_code) == told, row.reason
    assert (row.start_s, row.setbacks, row.elastic) == (began, 0, False)
    assert live.kinds(job).count("job.alone") == 1
    for _ in range(3):
        await live.poll(5)
    assert len(live.subjobs(job)) == 1, "it is run once"


@KINDS
async def test_what_still_runs_is_taken_up_and_goes_on(live: LiveWorld, kind: dict[str, Any]) -> None:
    job = await waiting(live, kind)
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 10
    begins_alone(live, job)
    for _ in range(3):  # as often as the daemon comes and goes
        await returns(live, 20)
        assert (live.job(job).state, live.job(job).elastic) == ("running", False)
    live.batch.free = 16
    for _ in range(3):
        await live.poll(5)
    live.batch.end(f"ejb-{job}.0", BatchState.FAILED, 3)
    await live.poll(5)
    row = live.job(job)
    assert (row.state, row.exit_code, len(live.subjobs(job))) == ("failed", 3, 1)
    assert live.kinds(job).count("job.alone") == 1


async def test_a_start_that_the_daemon_had_seen_is_taken_up_all_the_same(live: LiveWorld) -> None:
    job = await waiting(live, SCRIPT)
    live.batch.start(f"ejb-{job}.0")
    await live.poll()
    begins_alone(live, job)
    await returns(live, 70)
    assert live.job(job).state == "running"
    await live.manager.cancel(job, "ada")
    await live.act()
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.CANCELLED
    await live.poll(5)
    assert live.job(job).state == "cancelled"


async def test_workers_that_do_not_come_since_they_have_begun_cost_no_j0(live: LiveWorld) -> None:
    """The daemon sees J0 run for long without a worker, and is about to give it back."""
    job = await waiting(live, SCRIPT, walltime_s=1000.0)
    live.batch.start(f"ejb-{job}.0")
    await live.poll()
    begins_alone(live, job)
    for _ in range(4):
        await live.poll(50)
    assert live.job(job).state == "running"
    assert live.batch.of(f"ejb-{job}.0").state is BatchState.RUNNING
