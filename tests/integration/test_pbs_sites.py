"""What an OpenPBS of other sites has, on the fake and on a real one.

Routing queues, arrays of its own, suspended jobs, a scheduler that rests.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ejbd.batch.base import AsAsked, SubmitRequest
from ejbd.batch.pbs import PbsBatch
from ejbd.core.room.suspended import kept_for_suspended
from ejbd.core.room.windows import windows
from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.errors import BatchError, EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.submission.admission import queue_for
from tests.fakes.me import ME
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.pbs_clusters import PbsCluster, real_ones

QUEUES: tuple[Mapping[str, Any], ...] = (
    {"name": "route", "destinations": ["small", "big"]},
    {"name": "small", "most": {"ncpus": 2, "walltime": 600.0}, "from_route_only": True},
    {"name": "big", "most": {"walltime": 7200.0}, "from_route_only": True},
    {"name": "direct"},
)
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class RealSite:
    """The same on a real OpenPBS, by qmgr."""

    cluster: PbsCluster

    @property
    def path(self) -> str:
        return self.cluster.path

    def begin(self) -> None:
        self.qmgr(*(f"create queue {queue['name']}" for queue in QUEUES))
        for queue in QUEUES:
            route, most = queue.get("destinations"), queue.get("most", {})
            told = {"queue_type": "route" if route else "execution"}
            if route:
                told["route_destinations"] = f'"{",".join(route)}"'
            told |= {f"resources_max.{what}": str(int(count)) for what, count in most.items()}
            if queue.get("from_route_only"):
                told["from_route_only"] = "True"
            told |= {"enabled": "True", "started": "True"}  # at last: it is checked then
            self.qmgr(*(f"set queue {queue['name']} {key} = {value}" for key, value in told.items()))
        self.control("server", default_queue="route", scheduling=True)

    def qmgr(self, *lines: str) -> None:
        for line in lines:
            self.cluster.run("qmgr", "-c", line)

    def control(self, what: str, **more: Any) -> None:
        self.qmgr(*(f"set {what} {key} = {value}" for key, value in more.items()))

    def run(self, *argv: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return self.cluster.call(*argv, stdin=stdin, cwd=cwd)

    def kill_mom(self, node: str) -> None:
        self.cluster.kill_mom(node)

    def start_mom(self, node: str) -> None:
        self.cluster.start_mom(node)

    def empty(self) -> None:
        self.cluster.empty()


Site = PbsSite | RealSite


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(which, marks=pytest.mark.xdist_group(f"pbs-sites-{which}")) for which in ("fake", "openpbs-real")
    ],
)
def whole(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "fake":
        with pbs_site("openpbs", nodes=2, queues=QUEUES, default_queue="route") as site:
            yield site
        return
    with real_ones(2, 4) as cluster:
        real = RealSite(cluster(request.param))
        real.begin()
        yield real


@pytest.fixture
async def site(whole: Site) -> AsyncIterator[Site]:
    yield whole
    whole.control("server", default_queue="route", scheduling=True)
    await asyncio.to_thread(whole.empty)


class Later:
    """A clock that can be set forward."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.by_s


async def seen(batch: PbsBatch, right: Callable[[ClusterView], bool]) -> ClusterView:
    deadline = time.monotonic() + PATIENCE_S
    while not right(view := await batch.observe()):
        assert time.monotonic() < deadline, f"never seen: {view.jobs}"
        await asyncio.sleep(0.05)
    return view


def of(view: ClusterView, id: str) -> BatchJobView:
    return next(job for job in view.jobs if job.id == id)


def states_of(view: ClusterView) -> set[tuple[str, BatchState]]:
    return {(job.id, job.state) for job in view.jobs}


def request(folder: Path, queue: str, processors: int, walltime_s: float = 300.0) -> SubmitRequest:
    script, output = "#!/bin/sh\nsleep 300\n", folder / "output"
    return SubmitRequest(f"ejb-a1.{processors}", "", queue, processors, walltime_s, script, folder, output)


async def test_a_routing_queue_is_a_queue_with_the_room_behind_it(site: Site, tmp_path: Path) -> None:
    batch = PbsBatch(path=site.path)
    view = await batch.observe()
    route = view.queue("route")
    assert route is not None and (route.up, route.default, route.leads_to) == (True, True, ("small", "big"))
    assert (route.total_processors, route.max_walltime_s) == (8, 7200)
    assert windows(view, "route", view.time_s).available(600.0) == 8
    narrow = await batch.submit(ME, request(tmp_path, "route", 1))
    wide = await batch.submit(ME, request(tmp_path, "", 4))
    view = await seen(batch, lambda view: sum(job.state is BatchState.RUNNING for job in view.jobs) == 2)
    assert (of(view, narrow).queue, of(view, wide).queue) == ("small", "big")
    assert windows(view, "route", view.time_s).available(600.0) == 3


async def test_a_queue_that_only_a_route_feeds_is_named_with_its_route(site: Site) -> None:
    view = await PbsBatch(path=site.path).observe()

    def asks(queue: str | None) -> str:
        overrides = Overrides(ntasks="2", time="10", partition=queue)
        job = read(JobRequest(cwd="/", command=("/bin/true",), env={}, overrides=overrides))
        return queue_for(view, job.spec)

    assert (asks(None), asks("direct"), asks("route")) == ("route", "direct", "route")
    with pytest.raises(EjbError, match="queue small takes jobs from the routing queue route alone"):
        asks("small")


async def test_a_default_queue_that_is_changed_is_seen_within_minutes(site: Site) -> None:
    clock = Later()
    batch = PbsBatch(path=site.path, clock=clock)
    assert [queue.name for queue in (await batch.observe()).queues if queue.default] == ["route"]
    site.control("server", default_queue="direct")
    clock.by_s = 61.0
    await batch.observe()
    assert [queue.name for queue in (await batch.observe()).queues if queue.default] == ["direct"]


async def test_a_server_that_does_not_schedule_has_no_windows_and_says_why(site: Site) -> None:
    clock = Later()
    batch = PbsBatch(path=site.path, clock=clock)
    assert windows(await batch.observe(), "route", clock()).available(60.0) == 8
    site.control("server", scheduling=False)
    clock.by_s = 61.0
    await batch.observe()
    view = await batch.observe()
    assert windows(view, "route", clock()).slots() == () and "scheduling is switched off" in view.windows_by


async def test_an_array_costs_a_poll_no_more_than_its_elements_that_run(site: Site, tmp_path: Path) -> None:
    batch = PbsBatch(path=site.path)
    words = ["-J", "0-9999", "-l", "select=1:ncpus=3", "-l", "walltime=600", "-q", "direct"]
    done = site.run("qsub", *words, stdin="#!/bin/sh\nsleep 300\n", cwd=tmp_path)
    whole = done.stdout.strip()
    assert whole.endswith("[].head"), done
    running = {whole.replace("[]", f"[{index}]") for index in (0, 1)}
    view = await seen(batch, lambda view: {job.id for job in view.jobs} == {whole, *running})
    waits = of(view, whole)
    assert (waits.state, waits.processors) == (BatchState.PENDING, 3) and waits.planned_start_s is not None
    for id in running:
        job = of(view, id)
        assert (job.state, job.processors, len(job.nodes)) == (BatchState.RUNNING, 3, 1)
        assert job.start_s is not None and job.end_s == job.start_s + 600
    before = {name: count.calls for name, count in batch.command_counts.items()}
    for _ in range(3):
        await batch.observe()
    asked = {name: count.calls - before.get(name, 0) for name, count in batch.command_counts.items()}
    assert asked["qstat"] == 3, "elements that are known are not asked after again"
    site.run("qdel", whole)


async def test_what_an_operator_suspends_keeps_its_room(site: Site, tmp_path: Path) -> None:
    batch = PbsBatch(path=site.path)
    id = await batch.submit(ME, request(tmp_path, "direct", 6))
    await seen(batch, lambda view: of(view, id).state is BatchState.RUNNING)
    assert site.run("qsig", "-s", "suspend", id).returncode == 0
    view = await seen(batch, lambda view: of(view, id).state is BatchState.SUSPENDED)
    assert len(of(view, id).nodes) == 2
    assert sum(node.free for node in view.nodes) == 8, "PBS counts it as idle"
    assert sum(node.free for node in kept_for_suspended(view).nodes) == 2
    assert site.run("qsig", "-s", "resume", id).returncode == 0
    await seen(batch, lambda view: of(view, id).state is BatchState.RUNNING)


async def test_a_passed_through_job_whose_mom_dies_is_run_again_by_pbs(site: Site, tmp_path: Path) -> None:
    batch = PbsBatch(path=site.path)
    plain = request(tmp_path, "direct", 1)
    asked = AsAsked((), None, tmp_path, None, {}, None, "his")
    ids: dict[str, str] = {}
    for name, options in (("his", ()), ("never", ("--no-requeue",))):
        one = replace(plain, tag=f"ejb-{len(ids)}.0", options=options, asked=asked, output=tmp_path / name)
        ids[name] = await batch.submit(ME, one)
        view = await seen(batch, lambda view, id=ids[name]: of(view, id).state is BatchState.RUNNING)  # type: ignore[misc]
    deadline = time.monotonic() + PATIENCE_S
    while not all((tmp_path / name).exists() for name in ids):  # a mom that has not begun a job forgets it
        assert time.monotonic() < deadline, "a job did not begin"
        await asyncio.sleep(0.05)
    node = of(view, ids["his"]).nodes[0]
    assert of(view, ids["never"]).nodes == (node,)
    begun = of(view, ids["his"]).start_s
    await asyncio.to_thread(site.kill_mom, node)
    await asyncio.to_thread(site.start_mom, node)
    view = await seen(batch, lambda view: (ids["never"], BatchState.NODE_FAIL) in states_of(view))
    view = await seen(batch, lambda view: (ids["his"], BatchState.RUNNING) in states_of(view))
    assert begun is not None and (of(view, ids["his"]).start_s or 0.0) >= begun


async def test_what_a_job_submits_with_its_whole_environment_is_listed_with_it(site: Site, tmp_path: Path) -> None:
    """Of the submitter's variables those that `-v` names, and PBS's own beside them; with `-V` all of them, but for
    OpenPBS 23.06.06, whose qsub hands on none (env_array_to_varlist in its qsub.c returns before it has looked)."""
    named = site.run("qsub", "-v", "TZ", "-h", stdin="#!/bin/sh\n", cwd=tmp_path)
    whole = site.run("qsub", "-V", "-h", stdin="#!/bin/sh\n", cwd=tmp_path)
    for done in (named, whole):
        told = json.loads(site.run("qstat", "-f", "-F", "json", done.stdout.strip()).stdout)["Jobs"]
        (job,) = told.values()
        variables = job["Variable_List"]
        assert variables["PBS_O_WORKDIR"] == str(tmp_path)
        assert variables.get("TZ") == (None if done is whole and isinstance(site, RealSite) else "UTC0")


async def test_a_job_that_is_to_stay_off_a_node_gets_others(site: Site, tmp_path: Path) -> None:
    batch = PbsBatch(path=site.path)
    view = await batch.observe()
    left, other = (node.name for node in view.nodes)
    id = await batch.submit(ME, replace(request(tmp_path, "direct", 2), exclude=(left,)))
    view = await seen(batch, lambda view: of(view, id).state is BatchState.RUNNING)
    assert of(view, id).nodes == (other,)
    with pytest.raises(BatchError, match="no room is idle beside the nodes that are to be left"):
        await batch.submit(ME, replace(request(tmp_path, "direct", 4), exclude=(left,)))
