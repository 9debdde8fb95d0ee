"""What the windows do not say by themselves: J0 is not listed yet, and who was waiting goes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ejbd.core.view import BatchJobView, BatchState, SiteReservation
from ejbd.manager.jobspec import JobSpec, Reading
from ejbd.store.store import Store
from ejbd.wire.kinds import JobKind
from tests.fakes.live import LiveWorld


def asked_for(live: LiveWorld, job: str) -> list[int]:
    return [subjob.processors for subjob in live.subjobs(job) if subjob.role == "subjob"]


async def test_nothing_is_asked_for_before_the_batch_system_shows_j0(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    await live.poll()
    live.batch.hang_submissions = 1
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == []
    for _ in range(10):
        await live.poll(5)
    assert asked_for(live, job) == [8]


async def test_a_waiting_job_that_fits_goes_first_but_not_for_ever(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    live.batch.others = [BatchJobView("1", "other", "eve", "batch", BatchState.PENDING, 6, 3600.0)]
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == [2], "six of the eight are the other's at the next pass"


async def test_one_that_fits_and_does_not_start_is_not_made_room_for_for_ever(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    live.batch.others = [BatchJobView("1", "other", "eve", "batch", BatchState.PENDING, 8, 3600.0)]
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == []
    for _ in range(4):
        await live.poll(5)
    assert asked_for(live, job) == [8], "it waits for something else than room"


async def test_a_job_that_waits_for_something_else_holds_nobody_up(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    live.batch.others = [
        BatchJobView("1", "other", "eve", "batch", BatchState.PENDING, 8, 3600.0, reason="Dependency", blocked=True)
    ]
    job = await live.submit()
    await live.poll(1)
    assert asked_for(live, job) == [8]


async def test_subjobs_end_before_a_maintenance_that_is_coming(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, suspend=True)
    live.batch.free = 8
    live.batch.reserved = (SiteReservation("m", live.clock.now + 400, live.clock.now + 4000, ("n1",)),)
    job = await live.submit()
    await live.poll(1)
    (subjob,) = [s for s in live.subjobs(job) if s.role == "subjob"]
    assert subjob.processors == 8 and subjob.walltime_s <= 399
    (window,) = await live.manager.windows(None)
    assert window["slots"] == [{"processors": 8, "duration_s": 399.0, "why": "reservation m"}]


async def test_a_subjob_that_can_never_start_is_not_asked_for_again_and_again(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    job = await live.submit()
    for _ in range(40):
        await live.poll(15)
        for row in live.batch.live():
            if row.state is BatchState.PENDING and not row.name.endswith(".0"):
                why, start_s = "ReqNodeNotAvail, Reserved for maintenance", live.clock.now + 1800
                kept_out = replace(row, blocked=True, reason=why, planned_start_s=start_s)
                live.batch.jobs[row.id] = kept_out
    assert len(asked_for(live, job)) == 1, "nothing of it will be gone within these ten minutes"


async def test_nothing_is_started_in_a_window_that_may_be_somebody_elses(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    live.batch.blind = "PrivateData=jobs hides the jobs of others"
    await live.poll()
    spec = JobSpec(
        "heat", JobKind.COMMAND, ("./heat",), 16, 100.0, cwd=str(tmp_path), output="out", engine="application"
    )
    taken = await live.manager.submit(Reading(spec), "ada", None, "hash")
    await live.act()
    for _ in range(3):
        await live.poll(5)
    assert asked_for(live, taken.id) == []
    assert [note for note in taken.notes if "not started early" in note and live.batch.blind in note]
    assert live.manager.health()["blind"] == live.batch.blind
    (window,) = await live.manager.windows("batch")
    assert (window["slots"], window["blind"]) == ([], live.batch.blind)
    assert live.batch.blind in (await live.manager.explain(taken.id))["now"]
    live.batch.blind = ""
    await live.poll(5)
    assert asked_for(live, taken.id) == [8]
