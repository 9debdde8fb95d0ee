"""What real ones were seen to do, on demand: nothing is lost, doubled or believed that was not said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from ejbd.batch.base import SubmitRequest
from ejbd.batch.pbs import PbsBatch
from ejbd.core.room.windows import windows
from ejbd.core.view import BatchState, ClusterView
from ejbd.errors import BatchError, SubmitOutcomeUnknown
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import IntentState
from ejbd.wire.kinds import IntentKind
from tests.fakes.me import ME
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.batch_counts import manager_on
from tests.integration.pbs_clusters import REAL, PbsCluster, real_ones

pytestmark = pytest.mark.xdist_group("pbs-faults")  # one process brings up the sites


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, PbsSite]]:
    with pbs_site("openpbs", nodes=4) as openpbs, pbs_site("torque", maui=True, nodes=4) as torque:
        yield {"openpbs": openpbs, "torque": torque}


# Two dialects of one adapter take turns, as in the contract: each fault is on one of them.
TURNS = [
    pytest.param("openpbs", marks=pytest.mark.sampled(2, of="faults of OpenPBS")),
    pytest.param("torque", marks=pytest.mark.sampled(2, of="faults of Torque", first=1)),
]


@pytest.fixture(params=TURNS)
def site(request: pytest.FixtureRequest, sites: dict[str, PbsSite]) -> Iterator[PbsSite]:
    found = sites[request.param]
    yield found
    found.empty()


@pytest.fixture(scope="module")
def real_pbs() -> Iterator[Callable[[str], PbsCluster]]:
    with real_ones(2, 2) as cluster:
        yield cluster


@pytest.fixture(params=[*TURNS, *REAL])
def any_site(request: pytest.FixtureRequest) -> Iterator[PbsSite | PbsCluster]:
    """The real ones, too, for faults that they can be brought to."""
    if request.param in REAL:
        found: PbsSite | PbsCluster = request.getfixturevalue("real_pbs")(request.param)
    else:
        found = request.getfixturevalue("sites")[request.param]
    yield found
    found.empty()


def batch(site: PbsSite | PbsCluster, **options: float) -> PbsBatch:
    return PbsBatch(path=site.path, **options)  # type: ignore[arg-type]


def request(folder: Path, tag: str = "ejb-f00d.1", processors: int = 2) -> SubmitRequest:
    script = "#!/bin/sh\nsleep 300\n"
    return SubmitRequest(tag, "", "batch", processors, 600.0, script, folder, folder / "out")


async def seen(adapter: PbsBatch, id: str, state: BatchState) -> ClusterView:
    deadline = time.monotonic() + 60
    while True:
        view = await adapter.observe()
        if any(job.id == id and job.state is state for job in view.jobs):
            return view
        assert time.monotonic() < deadline, view.jobs


async def test_a_qsub_that_times_out_once_it_has_submitted_is_adopted_by_its_tag(site: PbsSite, tmp_path: Path) -> None:
    adapter = batch(site, submit_timeout_s=3.0)
    await adapter.observe()
    site.mischief(hang=["qsub"])
    with pytest.raises(SubmitOutcomeUnknown):
        await adapter.submit(ME, request(tmp_path))
    site.mischief()
    found = await batch(site).find(ME, ["ejb-f00d.1", "ejb-f00d.2"])
    assert list(found) == ["ejb-f00d.1"] and len(site.numbers()) == 1


async def test_a_qalter_that_hangs_has_done_its_work(site: PbsSite, tmp_path: Path) -> None:
    adapter = batch(site, change_timeout_s=3.0)
    id = await adapter.submit(ME, request(tmp_path))
    await seen(adapter, id, BatchState.RUNNING)
    site.mischief(hang=["qalter"])
    await adapter.update(ME, id, walltime_s=300)
    site.mischief()
    assert next(job.walltime_s for job in (await adapter.observe()).jobs if job.id == id) == 300


async def test_a_server_that_is_away_has_told_of_no_end(any_site: PbsSite | PbsCluster, tmp_path: Path) -> None:
    site = any_site
    adapter = batch(site)
    id = await adapter.submit(ME, request(tmp_path))
    await seen(adapter, id, BatchState.RUNNING)
    site.kill()
    try:
        for call in (adapter.observe(), adapter.find(ME, ["ejb-f00d.1"]), adapter.cancel(ME, [id])):
            with pytest.raises(BatchError) as caught:
                await call
            assert caught.value.transient
        with pytest.raises(BatchError) as caught:
            await adapter.submit(ME, request(tmp_path, "ejb-f00d.2"))
        assert caught.value.transient and not isinstance(caught.value, SubmitOutcomeUnknown)
        with pytest.raises(BatchError):
            await adapter.outcomes({id: tmp_path / "none"})
    finally:
        site.start()
    await seen(adapter, id, BatchState.RUNNING)
    assert await adapter.find(ME, ["ejb-f00d.1", "ejb-f00d.2"]) == {"ejb-f00d.1": id}


async def test_garbage_is_no_answer(site: PbsSite, tmp_path: Path) -> None:
    adapter = batch(site)
    id = await adapter.submit(ME, request(tmp_path))
    for name in ("qstat", "pbsnodes"):
        site.mischief(garbage=[name])
        with pytest.raises(BatchError) as caught:
            await adapter.observe()
        assert caught.value.transient
    site.mischief(garbage=["qsub"])
    with pytest.raises(SubmitOutcomeUnknown):
        await adapter.submit(ME, request(tmp_path, "ejb-f00d.3"))
    site.mischief()
    assert await adapter.find(ME, ["ejb-f00d.1"]) == {"ejb-f00d.1": id}


async def test_a_job_that_the_server_forgot_is_told_by_its_exit_file_alone(site: PbsSite, tmp_path: Path) -> None:
    adapter = batch(site)
    id = await adapter.submit(ME, replace(request(tmp_path), script="#!/bin/sh\nexit 3\n"))
    await seen(adapter, id, BatchState.FAILED)
    site.control("forget", job=int(id.partition(".")[0]))
    assert await batch(site).outcomes({id: tmp_path / "exit"}) == {}
    (tmp_path / "exit").write_text("3\n")
    assert (await batch(site).outcomes({id: tmp_path / "exit"}))[id].exit_code == 3


async def test_a_server_with_an_older_state_gives_numbers_to_strangers_which_nothing_reaches(
    site: PbsSite, tmp_path: Path
) -> None:
    """Two jobs wait; the server comes back without them, and other jobs get their numbers."""
    adapter = batch(site)
    blocker = await adapter.submit(ME, request(tmp_path, "ejb-b10c.0", 16))
    await seen(adapter, blocker, BatchState.RUNNING)
    state, wait = site.state(), "#!/bin/sh\nsleep 300\n"
    over = Overrides(ntasks="2", time="10", elastic="off")
    asked = JobRequest(cwd=str(tmp_path), script=wait, env={"PATH": "/usr/bin:/bin"}, overrides=over)
    async with manager_on(adapter, tmp_path / "daemon") as manager:
        jobs = [(await manager.submit(read(asked), manager.world.runs_as, None, "")).id for _ in range(2)]
        deadline = time.monotonic() + 60
        while len(site.numbers()) < 3:
            assert time.monotonic() < deadline, "they were not submitted"
            await asyncio.sleep(0.05)
        await manager.poller.poll()
        site.kill()
        await asyncio.sleep(1.1)  # times are told in seconds, and no server is there again within one
        site.start(state)
        words = ("qsub", "-N", "job", "-l", "walltime=600")
        strangers = [site.run(*words, stdin=wait, cwd=tmp_path).stdout.strip() for _ in range(2)]
        before = [site.stored(id) for id in strangers]
        await manager.hold(jobs[0], "me")
        await manager.cancel(jobs[1], "me")
        for _ in range(2):
            await manager.poller.poll()
            await asyncio.sleep(0.5)
        shown = await manager.store.read(lambda s: {one.job_id: one.batch_id for one in s.scalars(select(Subjob))})
        states = await manager.store.read(lambda s: {job.id: job.state for job in s.scalars(select(Job))})
        acts = await manager.store.read(
            lambda s: s.scalars(select(Intent).where(Intent.kind != IntentKind.SUBMIT)).all()
        )
    assert sorted(filter(None, shown.values())) == strangers
    assert [site.stored(id) for id in strangers] == before
    assert {act.state for act in acts} == {IntentState.DONE, IntentState.FAILED}
    assert states[jobs[0]] == "waiting" and states[jobs[1]] in ("ending", "cancelled")


async def test_a_job_deleted_behind_our_back_was_cancelled(any_site: PbsSite | PbsCluster, tmp_path: Path) -> None:
    site = any_site
    adapter = batch(site)
    id = await adapter.submit(ME, request(tmp_path))
    await seen(adapter, id, BatchState.RUNNING)
    site.run("qdel", id)
    await seen(adapter, id, BatchState.CANCELLED)


async def test_openpbs_answers_that_are_valid_and_none(sites: dict[str, PbsSite], tmp_path: Path) -> None:
    site = sites["openpbs"]
    adapter = batch(site)
    id = await adapter.submit(ME, request(tmp_path))
    site.mischief(no_jobs=True)
    with pytest.raises(BatchError) as caught:
        await adapter.observe()
    assert caught.value.transient
    for spoil in ("duplicate_keys", "bad_escapes"):
        site.mischief(spoil=spoil)
        view = await adapter.observe()
        assert view.unparsed == 0 and any(job.id == id and job.state is not BatchState.UNKNOWN for job in view.jobs)
    site.empty()


async def test_maui_that_is_away_or_stale_opens_no_window(sites: dict[str, PbsSite]) -> None:
    site = sites["torque"]
    adapter = batch(site)

    async def usable() -> int:
        view = await adapter.observe()
        return windows(view, "batch", view.time_s).available(600)

    assert await usable() == 16
    site.mischief(stale_s=900.0)
    for _ in range(3):
        last = await usable()
    assert last == 0
    assert "tells nothing" in (await adapter.observe()).windows_by
    away = ["ERROR:    cannot send request to server head:42559 (server may not be running)\n", 1]
    site.mischief(fails={"showbf": away, "showres": away})
    assert await usable() == 0
    site.mischief()
    for _ in range(3):
        last = await usable()
    assert last == 16
    site.empty()


async def test_a_real_maui_that_is_killed_opens_no_window(real_pbs: Callable[[str], PbsCluster]) -> None:
    cluster = real_pbs("torque-real")
    adapter = batch(cluster)

    async def usable(wanted: int) -> ClusterView:
        deadline = time.monotonic() + 60
        while True:
            view = await adapter.observe()
            if windows(view, "batch", view.time_s).available(600) == wanted:
                return view
            assert time.monotonic() < deadline, view.windows_by
            await asyncio.sleep(0.5)

    await usable(4)
    cluster.kill_maui()
    try:
        view = await usable(0)
        assert "tells nothing" in view.windows_by and not view.unparsed
    finally:
        cluster.start()
    await usable(4)


async def test_where_nobody_is_protected_nothing_is_started_while_others_wait(tmp_path: Path) -> None:
    with pbs_site("torque", nodes=2) as site:
        adapter = batch(site)
        view = await adapter.observe()
        assert windows(view, "batch", view.time_s).available(600) == 8
        for shape in ("procs=6", "procs=8"):
            done = site.run("qsub", "-l", shape, stdin="sleep 300", cwd=tmp_path, user="somebody")
            assert done.returncode == 0
        view = await adapter.observe()
        assert not view.keeps_order and "while others wait" in view.windows_by
        assert windows(view, "batch", view.time_s).slots() == ()


@pytest.mark.sampled(2)
async def test_a_poll_is_three_commands_whatever_the_number_of_jobs(site: PbsSite, tmp_path: Path) -> None:
    adapter = batch(site)
    await adapter.observe()
    for number in range(12):
        site.run("qsub", "-h", "-l", "walltime=60", stdin="true", cwd=tmp_path, user=f"user{number}")
    for _ in range(4):
        before = sum(count.calls for count in adapter.command_counts.values())
        view = await adapter.observe()
        assert sum(count.calls for count in adapter.command_counts.values()) - before <= 3
    assert len([job for job in view.jobs if job.state is BatchState.HELD]) == 12
