"""What every adapter of a batch system has to do, held against each of them for real."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet

from ejbd.batch.base import AsAsked, BatchSystem, Identity, Mark, SubmitRequest, WorkerScript
from ejbd.batch.local import LocalBatch
from ejbd.batch.local.client import Client
from ejbd.batch.pbs import PbsBatch
from ejbd.batch.slurm import SlurmBatch
from ejbd.core.room.windows import why_they_end, windows
from ejbd.core.view import BatchJobView, BatchState, ClusterView, Reservations
from ejbd.errors import BatchError, Code
from tests.fakes.me import ME
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.pbs_clusters import REAL, PbsCluster, real_ones
from tests.integration.slurm_clusters import SlurmCluster

NODES, PROCESSORS_PER_NODE = 8, 4
TOTAL = NODES * PROCESSORS_PER_NODE
PATIENCE_S = 60.0


@dataclass
class Site:
    """An empty cluster of 8 x 4 and its adapter. `walltime_kill(id)`: make the running job's walltime end soon.

    `reserve(minutes, nodes)`: have an operator reserve these nodes for maintenance in so many minutes; its name, and
    what takes it back. None: the batch system knows no such thing.
    `plans`: its scheduler tells when a job that waits will start. `warns`: where a cancellation is a TERM that
    workers have time for, and the exit file is written: on "all" nodes; on the "first", since OpenPBS kills at once
    what runs on others; on "none", since under Torque the shell around the script dies of it, and what is left is
    killed.
    """

    adapter: BatchSystem
    folder: Path
    walltime_kill: Callable[[str], None]
    reserve: Callable[[int, str], tuple[str, Callable[[], None]]] | None = None
    plans: bool = True
    warns: str = "all"

    def request(
        self, script: str, tag: str = "ejb-test", processors: int = 1, walltime_s: float = 600
    ) -> SubmitRequest:
        return SubmitRequest(
            tag=tag,
            comment="a comment",
            queue="batch",
            processors=processors,
            walltime_s=walltime_s,
            script=f"#!/bin/sh\n{script}\n",
            workdir=self.folder,
            output=self.folder / "output",
        )

    async def submit(self, script: str, tag: str = "ejb-test", processors: int = 1, walltime_s: float = 600) -> str:
        return await self.adapter.submit(ME, self.request(script, tag, processors, walltime_s))

    async def view(self, right: Callable[[ClusterView], bool]) -> ClusterView:
        """The first view that is right. What comes late is looked for more and more seldom: a look is processes."""
        deadline, pause_s = time.monotonic() + PATIENCE_S, 0.1
        while True:
            view = await self.adapter.observe()
            if right(view):
                return view
            assert time.monotonic() < deadline, f"never seen: {view.jobs}"
            await asyncio.sleep(pause_s)
            pause_s = min(1.0, 1.4 * pause_s)

    async def job(self, id: str, right: Callable[[BatchJobView], bool]) -> BatchJobView:
        view = await self.view(lambda view: any(right(job) for job in view.jobs if job.id == id))
        return next(job for job in view.jobs if job.id == id)

    async def ended(self, id: str) -> BatchJobView:
        return await self.job(id, lambda job: job.state.ended)

    async def running(self, id: str) -> BatchJobView:
        return await self.job(id, lambda job: job.state is BatchState.RUNNING)


@pytest.fixture(scope="module")
def fake_pbs() -> Iterator[Callable[[str], PbsSite]]:
    """Fake sites by what they are, each brought up once."""
    with ExitStack() as stack:
        sites: dict[str, PbsSite] = {}

        def site(kind: str) -> PbsSite:
            if kind not in sites:
                dialect, _, maui = kind.partition("-")
                sites[kind] = stack.enter_context(pbs_site(dialect, maui=maui == "maui"))
            return sites[kind]

        yield site


PBS = ["openpbs", "torque", "torque-maui"]
WARNS = {"openpbs": "first", "torque": "none"}
IN_ONE_PROCESS = pytest.mark.xdist_group("pbs-contract")  # which brings up each fake site once
# Two dialects of one adapter: by default every other test on each of them, so that each test has one.
OF_EACH_OTHER = [
    pytest.param("openpbs", marks=[IN_ONE_PROCESS, pytest.mark.sampled(2, of="the contract on OpenPBS")]),
    pytest.param("torque", marks=IN_ONE_PROCESS),
    pytest.param("torque-maui", marks=[IN_ONE_PROCESS, pytest.mark.sampled(2, of="the contract on Torque", first=1)]),
]


@pytest.fixture(scope="module")
def real_pbs() -> Iterator[Callable[[str], PbsCluster]]:
    with real_ones(NODES, PROCESSORS_PER_NODE) as cluster:
        yield cluster


@pytest.fixture(params=["local", pytest.param("slurm", marks=pytest.mark.slurm), *OF_EACH_OTHER, *REAL])
async def batch(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    if request.param == "slurm":
        cluster: SlurmCluster = request.getfixturevalue("slurm")
        # Slurm counts walltimes in minutes; the administrator's EndTime is exact to the 30 s of its timer.
        yield Site(
            cluster.batch(),
            tmp_path,
            lambda id: _ignore(cluster.run("scontrol", "update", f"JobId={id}", "EndTime=now+1")),
            lambda minutes, nodes: _reserve(cluster, minutes, nodes),
        )
        return
    if request.param in REAL:
        real: PbsCluster = request.getfixturevalue("real_pbs")(request.param)
        yield Site(
            PbsBatch(path=real.path),
            tmp_path,
            lambda id: real.shorten(id, 1),
            partial(_reserve_in_real_pbs, real),
            warns=WARNS[real.dialect],
        )
        real.empty()
        return
    if request.param in PBS:
        if request.param == "torque" and os.environ.get("EJB_TEST_PBS") != "all":
            pytest.skip("Torque without Maui differs in its windows alone: EJB_TEST_PBS=all runs all of it")
        pbs: PbsSite = request.getfixturevalue("fake_pbs")(request.param)

        yield Site(
            PbsBatch(path=pbs.path),
            tmp_path,
            lambda id: pbs.shorten(id, 1),
            None if request.param == "torque" else partial(_reserve_in_pbs, pbs),
            plans=request.param != "torque",
            warns=WARNS[pbs.dialect],
        )
        pbs.empty()
        return
    directory = tmp_path / "cluster"
    yield Site(LocalBatch(directory, NODES, PROCESSORS_PER_NODE), tmp_path, lambda id: None)
    try:
        await Client(directory, NODES, PROCESSORS_PER_NODE, 10).call("down", start=False, timeout_s=PATIENCE_S)
    except BatchError as error:
        assert "cannot be reached" in error.message


def _reserve(cluster: SlurmCluster, minutes: int, nodes: str) -> tuple[str, Callable[[], None]]:
    when = f"starttime=now+{minutes}minutes" if minutes else "starttime=now"
    words = (when, "duration=60", f"nodes={nodes}", "flags=maint,ignore_jobs", "users=root")
    name = cluster.run("scontrol", "create", "reservation", *words).split()[-1]
    return name, lambda: _ignore(cluster.run("scontrol", "delete", f"reservationname={name}"))


def _reserve_in_pbs(site: PbsSite, minutes: int, nodes: str) -> tuple[str, Callable[[], None]]:
    """As :func:`_reserve`. What OpenPBS calls M1.head is SYSTEM.1 to Maui."""
    name = f"SYSTEM.{minutes}" if site.maui else f"M{minutes}"
    start_s = round(time.time()) + 60 * minutes
    hosts = dict.fromkeys(NodeSet(nodes), site.cpus)
    site.control("reserve", name=name, start_s=start_s, end_s=start_s + 3600, nodes=hosts)
    return name if site.maui else f"{name}.head", lambda: site.control("unreserve")


def _reserve_in_real_pbs(cluster: PbsCluster, minutes: int, nodes: str) -> tuple[str, Callable[[], None]]:
    name = cluster.reserve(time.time() + 60 * minutes, list(NodeSet(nodes)))
    return name, lambda: cluster.take_back(name)


def _ignore(_: str) -> None:
    return None


def free(view: ClusterView) -> int:
    return sum(node.free for node in view.nodes)


async def test_an_empty_cluster(batch: Site) -> None:
    view = await batch.adapter.observe()
    assert [(node.name, node.processors, node.free, node.usable) for node in view.nodes] == [
        (f"n{i}", PROCESSORS_PER_NODE, PROCESSORS_PER_NODE, True) for i in range(1, NODES + 1)
    ]
    queue = view.queue("batch")
    assert queue is not None and queue.up and queue.default
    assert (queue.total_processors, queue.processor_quantum, queue.max_walltime_s) == (TOTAL, 1, None)
    assert view.unparsed == 0
    assert not [job for job in view.jobs if not job.state.ended]
    assert all(good for _, good, _ in await batch.adapter.doctor())


async def test_ends_are_seen_with_their_codes(batch: Site) -> None:
    before = time.time()
    ends = {
        "true": (BatchState.COMPLETED, 0),
        "exit 7": (BatchState.FAILED, 7),
        "kill -KILL $$": (BatchState.FAILED, 137),
    }
    ids = {}
    for number, script in enumerate(ends):
        request = batch.request(f"echo it ran; {script}")
        ids[script] = await batch.adapter.submit(ME, replace(request, output=batch.folder / f"output-{number}"))
    for number, (script, end) in enumerate(ends.items()):
        job = await batch.ended(ids[script])
        assert (job.state, job.exit_code, job.name, job.queue) == (*end, "ejb-test", "batch")
        assert job.start_s is not None and job.end_s is not None
        assert before - 2 <= job.start_s <= job.end_s <= time.time() + 2
        assert (batch.folder / f"output-{number}").read_text() == "it ran\n"
    outcomes = await batch.adapter.outcomes(dict.fromkeys(ids.values(), batch.folder / "no exit file"))
    told = {script: (outcomes[id].state, outcomes[id].exit_code) for script, id in ids.items()}
    assert told == ends
    signals = [outcomes[id].exit_signal for id in ids.values()]
    assert signals == [None, None, 9 if batch.adapter.name in ("slurm", "local") else None]


async def test_a_running_job(batch: Site) -> None:
    id = await batch.submit("sleep 300", processors=6, walltime_s=1200)
    job = await batch.running(id)
    assert (job.processors, job.walltime_s, len(job.nodes)) == (6, 1200, 2)
    assert job.start_s is not None and job.end_s is not None
    assert abs(job.end_s - job.start_s - 1200) < 2
    assert job.planned_start_s is None and job.exit_code is None
    assert await batch.adapter.outcomes({id: batch.folder / "no exit file"}) == {}


async def test_free_processors_go_down_and_up(batch: Site) -> None:
    view = await batch.view(lambda view: free(view) == TOTAL)
    assert windows(view, "batch", view.time_s).available(3600) == TOTAL
    id = await batch.submit("sleep 300", processors=7)
    view = await batch.view(lambda view: free(view) == TOTAL - 7)
    assert windows(view, "batch", view.time_s).available(3600) == TOTAL - 7
    assert {node.name for node in view.nodes if node.free < node.processors} == set((await batch.running(id)).nodes)
    await batch.adapter.cancel(ME, [id])
    await batch.view(lambda view: free(view) == TOTAL)


async def test_a_pending_job_has_a_planned_start(batch: Site) -> None:
    running = await batch.submit("sleep 300", processors=TOTAL - 2, walltime_s=600)
    end_s = (await batch.running(running)).end_s
    first = await batch.submit("sleep 300", tag="first", processors=16, walltime_s=600)
    second = await batch.submit("sleep 300", tag="second", processors=16, walltime_s=600)
    job = await batch.job(first, lambda job: job.planned_start_s is not None or not batch.plans)
    assert job.state is BatchState.PENDING and job.start_s is None and job.nodes == ()
    if batch.plans:
        assert end_s is not None and job.planned_start_s is not None and abs(job.planned_start_s - end_s) < 5
    view = await batch.adapter.observe()
    if view.reservations is Reservations.NODES and batch.plans:
        assert len(job.planned_nodes) >= 4
    assert [job.id for job in view.jobs if job.state is BatchState.PENDING] == [first, second]
    # The two idle processors are usable at least until then.
    assert windows(view, "batch", view.time_s).available(300) == 2


async def test_maintenance_ends_windows_on_its_nodes(batch: Site) -> None:
    if batch.reserve is None:
        pytest.skip(f"{batch.adapter.name} knows no reservations")
    _, take_back_now = batch.reserve(0, "n8")
    name, take_back = batch.reserve(10, "n[1-3]")
    try:
        view = await batch.view(lambda view: bool(view.site_reservations))
        found = next(one for one in view.site_reservations if one.name == name)
        assert (found.nodes, found.what, found.admits) == (("n1", "n2", "n3"), "maintenance", False)
        assert found.processors is None and found.end_s - found.start_s == 3600
        assert 0 < found.start_s - view.time_s <= 601  # told in whole seconds
        slots = windows(view, "batch", view.time_s).slots()
        assert [slot.processors for slot in slots] == [TOTAL - 16, TOTAL - 4]
        assert math.isinf(slots[0].duration_s) and slots[1].duration_s <= 600
        assert why_they_end(view, "batch", slots) == ["", f"maintenance {name}"]
    finally:
        take_back_now()
        take_back()
    assert view.unparsed == 0


async def test_cancel_pending_and_running_twice_and_unknown(batch: Site) -> None:
    running = await batch.submit("sleep 300", processors=TOTAL)
    await batch.running(running)
    pending = await batch.submit("sleep 300", processors=TOTAL)
    await batch.adapter.cancel(ME, [])
    await batch.adapter.cancel(ME, [pending, running])
    assert (await batch.ended(pending)).state is BatchState.CANCELLED
    assert (await batch.ended(running)).state is BatchState.CANCELLED
    await batch.adapter.cancel(ME, [running, pending, "999999"])
    outcomes = await batch.adapter.outcomes(dict.fromkeys((running, pending), batch.folder / "no exit file"))
    assert {outcome.state for outcome in outcomes.values()} == {BatchState.CANCELLED} and len(outcomes) == 2


async def test_find_by_tag(batch: Site) -> None:
    ended = await batch.submit("true", tag="ejb-a1")
    running = await batch.submit("sleep 300", tag="ejb-a2", processors=TOTAL - 1)
    await batch.ended(ended)
    await batch.running(running)
    pending = await batch.submit("sleep 300", tag="ejb-a3", processors=TOTAL)
    tags = ["ejb-a1", "ejb-a2", "ejb-a3", "EJB-A1", "ejb-a", "ejb-a33"]
    assert await batch.adapter.find(ME, tags) == {"ejb-a1": ended, "ejb-a2": running, "ejb-a3": pending}
    assert await batch.adapter.find(ME, ["ejb-none"]) == {}
    assert await batch.adapter.find(ME, []) == {}
    shown = await batch.adapter.list_jobs([running, pending, "999999"])
    assert {job.id: (job.mark, job.user) for job in shown} == {
        running: ("ejb-a2", ME.user),
        pending: ("ejb-a3", ME.user),
    }
    assert await batch.adapter.list_jobs(["999999"]) == [] and await batch.adapter.list_jobs([]) == []
    none = batch.folder / "no exit file"
    assert ended in await batch.adapter.outcomes({ended: none}, {ended: Mark("ejb-a1")})
    assert await batch.adapter.outcomes({ended: none}, {ended: Mark("ejb-f.0", 1.0)}) == {}, "a stranger's by then"


async def test_what_a_job_submits_itself_bears_nothing_of_its_own(batch: Site) -> None:
    """With its whole environment: whatever marks a job of EJB's is no variable."""
    if batch.adapter.name == "local":
        pytest.skip("the embedded cluster has no command that submits from a job")
    # Slurm's wrapper has the name qsub, too.
    typed = {"pbs": '"${EJB_PBSDSH%/*}"/qsub -V next.job', "slurm": "sbatch --export=ALL next.job"}[batch.adapter.name]
    (batch.folder / "next.job").write_text("#!/bin/sh\nsleep 300\n")
    tag = "ejb-a1.0"
    first = await batch.submit(f"{typed} || exit 3\nsleep 300", tag=tag)
    seen = await batch.view(lambda view: len([job for job in view.jobs if not job.state.ended]) == 2)
    other = next(job for job in seen.jobs if job.id != first and not job.state.ended)
    assert (other.tag, other.mark) == ("", "next.job")
    assert await batch.adapter.find(ME, [tag]) == {tag: first}


ODD_NAMES = [
    "two words",
    "it's",
    'say "x"',
    "$(touch odd)",
    "`touch odd`",
    "a|b|c",
    "comma,s",
    "percent %j %n",
    "back\\slash",
    "-n 99",
    "über",
    "new\nline",
    "9|RUNNING|\n9|RUNNING|root",
    "tab\there",
]


async def test_odd_names_neither_lose_nor_forge_a_job(batch: Site) -> None:
    ids = {}
    for name in ODD_NAMES:
        request = replace(batch.request("sleep 300", tag=name), comment=name, hold=True)
        ids[name] = await batch.adapter.submit(ME, request)
    view = await batch.adapter.observe()
    live = {job.id: job.name for job in view.jobs if not job.state.ended}
    assert live == {id: name for name, id in ids.items()}
    assert view.unparsed == 0
    assert await batch.adapter.find(ME, ODD_NAMES) == ids
    assert not (batch.folder / "odd").exists()
    await batch.adapter.cancel(ME, list(ids.values()))


async def test_walltime_kill(batch: Site) -> None:
    id = await batch.submit("sleep 300", walltime_s=1 if batch.adapter.name == "local" else 60)
    await batch.job(id, lambda job: job.state is not BatchState.PENDING)
    batch.walltime_kill(id)
    assert (await batch.ended(id)).state is BatchState.TIMEOUT
    outcome = (await batch.adapter.outcomes({id: batch.folder / "no exit file"}))[id]
    assert outcome.state is BatchState.TIMEOUT


async def test_hold_and_release(batch: Site) -> None:
    held = await batch.adapter.submit(ME, replace(batch.request("sleep 300"), hold=True))
    await batch.job(held, lambda job: job.state is BatchState.HELD)
    await batch.adapter.update(ME, held, hold=False)
    await batch.running(held)
    pending = await batch.submit("true", processors=TOTAL)
    await batch.adapter.update(ME, pending, hold=True)
    await batch.job(pending, lambda job: job.state is BatchState.HELD)
    await batch.adapter.cancel(ME, [held])
    await batch.ended(held)
    assert (await batch.job(pending, lambda job: True)).state is BatchState.HELD
    await batch.adapter.update(ME, pending, hold=False)
    await batch.ended(pending)


async def test_what_stands_by_begins_after_a_failure_only_once_it_is_let(batch: Site) -> None:
    """It has its place all the while: before the one that was submitted behind it."""
    first = await batch.submit("sleep 300", tag="ejb-first", processors=TOTAL)
    await batch.running(first)
    request = replace(batch.request("true", tag="ejb-by", processors=TOTAL), stands_by_for=first)
    waits = await batch.adapter.submit(ME, request)
    others = [await batch.submit("sleep 4", tag=f"ejb-other{at}", processors=TOTAL) for at in range(2)]
    await batch.adapter.cancel(ME, [first])
    await batch.running(others[0])
    assert (await batch.job(waits, lambda job: True)).state in (BatchState.PENDING, BatchState.HELD)
    await batch.adapter.update(ME, waits, begins=True)
    await batch.adapter.update(ME, waits, begins=True)  # an answer may be lost
    by, last = await batch.ended(waits), await batch.ended(others[1])
    assert by.state is BatchState.COMPLETED and by.start_s is not None and last.start_s is not None
    assert by.start_s <= last.start_s


async def test_what_waits_is_kept_from_beginning_and_what_runs_is_not_touched(batch: Site) -> None:
    first = await batch.submit("sleep 300", tag="ejb-first", processors=TOTAL)
    await batch.running(first)
    with pytest.raises(BatchError):
        await batch.adapter.update(ME, first, begins=False)
    waits = await batch.submit("true", tag="ejb-waits", processors=TOTAL)
    if isinstance(batch.adapter, PbsBatch):
        with pytest.raises(BatchError, match="may hold a job that runs"):
            await batch.adapter.update(ME, waits, begins=False)
        return
    await batch.adapter.update(ME, waits, begins=False)
    await batch.adapter.update(ME, waits, begins=False)
    await batch.adapter.cancel(ME, [first])
    await batch.ended(first)
    await asyncio.sleep(3)  # the batch system looks at its queue meanwhile
    seen = await batch.job(waits, lambda job: True)
    assert seen.state in (BatchState.PENDING, BatchState.HELD) and seen.planned_start_s is None
    await batch.adapter.update(ME, waits, begins=True)
    assert (await batch.ended(waits)).state is BatchState.COMPLETED


async def test_what_is_kept_from_beginning_for_a_while_begins_by_itself(batch: Site) -> None:
    """On Slurm; the embedded cluster holds it until it is let."""
    if isinstance(batch.adapter, PbsBatch):
        return  # it keeps none from beginning: see above
    first = await batch.submit("sleep 300", tag="ejb-first", processors=TOTAL)
    await batch.running(first)
    waits = await batch.submit("true", tag="ejb-waits", processors=TOTAL)
    await batch.adapter.update(ME, waits, begins=False, begin_in_s=3600.0)
    await batch.adapter.update(ME, waits, begins=False, begin_in_s=8.0)  # what is said last holds
    said_s = time.time()
    await batch.adapter.cancel(ME, [first])
    await batch.ended(first)
    await asyncio.sleep(3)
    seen = await batch.job(waits, lambda job: True)
    assert seen.state in (BatchState.PENDING, BatchState.HELD)
    if not isinstance(batch.adapter, SlurmBatch):
        await batch.adapter.update(ME, waits, begins=True)
        assert (await batch.ended(waits)).state is BatchState.COMPLETED
        return
    assert seen.blocked and seen.reason == "BeginTime" and seen.planned_start_s is not None
    over = await batch.ended(waits)
    assert over.state is BatchState.COMPLETED and over.start_s is not None and over.start_s >= said_s + 6.0


async def test_shorten_the_walltime(batch: Site) -> None:
    id = await batch.submit("sleep 300", walltime_s=1200)
    await batch.running(id)
    await batch.adapter.update(ME, id, walltime_s=300)
    job = await batch.job(id, lambda job: job.walltime_s == 300)
    assert job.start_s is not None and job.end_s is not None and abs(job.end_s - job.start_s - 300) < 2


async def test_changing_what_is_not_there_is_refused(batch: Site) -> None:
    with pytest.raises(BatchError) as caught:
        await batch.adapter.update(ME, "999999", walltime_s=60)
    assert not caught.value.transient


async def test_a_submission_that_cannot_be_right_is_refused(batch: Site) -> None:
    right = batch.request("true", tag="ejb-refused")
    for wrong in (
        replace(right, queue="nowhere"),
        replace(right, processors=10 * TOTAL),
        replace(right, options=("--no-such-option",)),
    ):
        with pytest.raises(BatchError) as caught:
            await batch.adapter.submit(ME, wrong)
        assert caught.value.code is Code.BATCH_REFUSED and not caught.value.transient
        assert len(caught.value.message) > 20
    assert await batch.adapter.find(ME, ["ejb-refused"]) == {}


async def test_nobody_is_acted_for_but_this_user(batch: Site) -> None:
    """Nothing is submitted, changed or looked for in somebody else's name, whatever the job."""
    mine = await batch.submit("sleep 60", "ejb-mine")
    other, asked = Identity("nobody-at-all"), batch.request("true", "ejb-others")
    for call in (
        batch.adapter.submit(other, asked),
        batch.adapter.check(other, asked, 10),
        batch.adapter.update(other, mine, hold=True),
        batch.adapter.find(other, ["ejb-mine"]),
        batch.adapter.cancel(other, [mine]),
    ):
        with pytest.raises(BatchError, match="not for 'nobody-at-all'") as caught:
            await call
        assert not caught.value.transient
    assert await batch.adapter.find(ME, ["ejb-mine", "ejb-others"]) == {"ejb-mine": mine}
    await batch.adapter.cancel(ME, [mine])
    await batch.ended(mine)


async def test_what_nobody_remembers_is_told_by_the_exit_file(batch: Site) -> None:
    good, bad = batch.folder / "good", batch.folder / "bad"
    good.write_text("0\n")
    bad.write_text("7\n")
    ids = {"999997": good, "999998": bad, "999996": batch.folder / "none"}
    for number, text in enumerate(("", "-1", "256", "1_0", "0x7", "1e2", "seven", "7 0", "\u0667")):  # no exit code
        ids[str(999980 + number)] = batch.folder / f"spoiled-{number}"
        ids[str(999980 + number)].write_text(text)
    outcomes = await batch.adapter.outcomes(ids)
    assert {id: (o.state, o.exit_code, o.source) for id, o in outcomes.items()} == {
        "999997": (BatchState.COMPLETED, 0, "exit-file"),
        "999998": (BatchState.FAILED, 7, "exit-file"),
    }


async def test_the_environment_that_was_asked_for(batch: Site) -> None:
    environment = {"ASKED": "two words", "SLURM_JOB_NAME": "forged", "SBATCH_TIMELIMIT": "1", "LC_ALL": "C.UTF-8"}
    script = 'echo "$ASKED/${PYTEST_CURRENT_TEST-unset}/$LC_ALL/$PWD"'
    id = await batch.adapter.submit(ME, replace(batch.request(script), environment=environment))
    job = await batch.ended(id)
    assert (job.name, job.walltime_s) == ("ejb-test", 600)
    assert (batch.folder / "output").read_text() == f"two words/unset/C.UTF-8/{batch.folder}\n"


async def test_a_users_environment_steers_no_command_of_the_daemons(batch: Site) -> None:
    """What would load his library into it, or have it ask another Slurm, reaches the job and not the command."""
    if batch.adapter.name != "slurm":
        pytest.skip("the embedded cluster runs no command to submit")
    asked = {
        "PATH": "/nowhere:/usr/bin:/bin",
        "LD_PRELOAD": str(batch.folder / "mallory.so"),
        "SLURM_CONF": "/nowhere/slurm.conf",
        "SBATCH_TIMELIMIT": "1",
        "LINES": "one\ntwo\t=three",
        "BASH_FUNC_hail%%": "() { echo hail\n}",
    }
    wanted = {**asked, "MORE": "4"}
    script = "#!/usr/bin/python3\nimport json, os\nprint(json.dumps(dict(os.environ)))\n"
    for export, names in ((None, set(asked)), ("ALL,MORE=4", set(wanted)), ("LINES,MORE=4", {"LINES", "MORE"})):
        output = batch.folder / f"output-{export}"
        options = [f"--output={output}", "--time=5", *([f"--export={export}"] if export else [])]
        as_asked = AsAsked(
            options=options,
            file=None,
            directory=batch.folder,
            name="asked",
            environment=asked,
            export=export,
            job_name="asked",
        )
        request = replace(batch.request("true"), script=script, asked=as_asked)
        job = await batch.ended(await batch.adapter.submit(ME, request))
        assert (job.state, job.walltime_s) == (BatchState.COMPLETED, 300)
        seen = json.loads(output.read_text().strip().splitlines()[-1])  # ld.so complains of what it cannot preload
        assert {name: seen.get(name) for name in wanted if name != "SLURM_CONF"} == {
            name: value if name in names else seen.get(name) if name == "PATH" else None
            for name, value in wanted.items()
            if name != "SLURM_CONF"
        }
        assert seen["SLURM_JOB_NAME"] == "asked" and seen.get("SLURM_EXPORT_ENV", "ALL") == (export or "ALL")


WORKER = """\
import json, os, signal, sys, time
arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
folder = arguments["--subjob-dir"]
def leave(*_):
    open(os.path.join(folder, "term-" + arguments["--node"]), "w").close()
    sys.exit(5)
signal.signal(signal.SIGTERM, leave)
with open(os.path.join(folder, arguments["--node"] + ".tmp"), "w") as file:
    json.dump([sys.argv[1], int(arguments["--processors"])], file)
os.rename(file.name, file.name[:-4])
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.1)
sys.exit(0)
"""


async def test_the_worker_script_starts_one_worker_a_node(batch: Site) -> None:
    folder = batch.folder / "sub job's"
    folder.mkdir()
    worker = folder / "worker.pyz"
    worker.write_text(WORKER)
    exit_file = folder / "exit"
    script = batch.adapter.worker_script(WorkerScript(sys.executable, worker, folder, exit_file))
    filler = await batch.submit("sleep 300", tag="filler", processors=2)  # so that the shares are uneven
    await batch.running(filler)
    id = await batch.adapter.submit(ME, replace(batch.request("", processors=10), script=script))
    job = await batch.running(id)
    view = await batch.view(lambda _: all((folder / node).exists() for node in job.nodes))
    shares = {node: (folder / node).read_text() for node in job.nodes}
    assert sum(int(text.strip("[]").split(",")[1]) for text in shares.values()) == 10
    assert all(text.startswith('["agent"') for text in shares.values())
    assert {path.name for path in folder.glob("n*")} == set(job.nodes)
    assert not exit_file.exists() and free(view) == TOTAL - 12
    (folder / "go").touch()
    assert (await batch.ended(id)).state is BatchState.COMPLETED
    assert exit_file.read_text().strip() == "0"
    assert (await batch.adapter.outcomes({"999999": exit_file}))["999999"].state is BatchState.COMPLETED


async def test_workers_hear_of_a_cancellation_and_the_exit_file_is_written(batch: Site) -> None:
    worker = batch.folder / "worker.pyz"
    worker.write_text(WORKER)
    exit_file = batch.folder / "exit"
    script = batch.adapter.worker_script(WorkerScript(sys.executable, worker, batch.folder, exit_file))
    id = await batch.adapter.submit(ME, replace(batch.request("", processors=6), script=script))
    nodes = (await batch.running(id)).nodes
    await batch.view(lambda _: all((batch.folder / node).exists() for node in nodes))
    await batch.adapter.cancel(ME, [id])
    assert (await batch.ended(id)).state is BatchState.CANCELLED
    await batch.view(lambda view: free(view) == TOTAL and (exit_file.exists() or batch.warns == "none"))
    warned = {"all": nodes, "first": nodes[:1], "none": ()}[batch.warns]
    assert all((batch.folder / f"term-{node}").exists() for node in warned)
    assert batch.warns == "none" or exit_file.read_text().strip() not in ("", "0")
    outcome = (await batch.adapter.outcomes({id: exit_file}))[id]
    assert outcome.state is BatchState.CANCELLED


async def test_an_ordinary_job_runs_its_command_on_all_its_processors(batch: Site) -> None:
    command = batch.adapter.rigid_command(["printf", "%s.", "a b", "$HOME", "-n", "it's"], 6)
    request = batch.request(command, processors=6)
    if batch.adapter.name == "pbs":  # the user's own PATH need not have what starts the tasks
        request = replace(request, environment={"PATH": "/usr/bin:/bin"})
    id = await batch.adapter.submit(ME, request)
    assert (await batch.ended(id)).state is BatchState.COMPLETED
    assert (batch.folder / "output").read_text() == "a b.$HOME.-n.it's." * 6
