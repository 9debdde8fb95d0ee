"""A real Slurm controller that loses its state, or comes back with an older one, and gives EJB's numbers to strangers.

Acts of every kind are on the books or asked for meanwhile. None reaches a stranger, and no stranger is taken for a job
of EJB's. By default two rounds are played, and twenty at night.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from ejbd.batch.process import CommandResult, Commands
from ejbd.manager.acts.subjobs import add_intent
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.manager import Manager
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import IntentState
from ejbd.wire.kinds import IntentKind
from tests.integration.batch_counts import elastic_manager, rpc_counts
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm-strangers")]

ROUNDS = 20
_FIELD = re.compile(r"(\w+)=(\S*)")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(2, 2, more="MessageTimeout=20\n") as cluster:
        yield cluster


def controller(cluster: SlurmCluster, number: signal.Signals) -> None:
    os.kill(int((cluster.directory / "run" / "slurmctld.pid").read_text()), number)


def come_back(cluster: SlurmCluster, state: bytes | None) -> None:
    """The controller dies, and knows no more of jobs than `state` when it is up again (None: nothing)."""
    with suppress(ProcessLookupError):
        controller(cluster, signal.SIGKILL)
    for path in cluster.job_state.parent.glob("job_state*"):
        path.unlink()
    if state is not None:
        cluster.job_state.write_bytes(state)
    cluster.up_again()


def shown(cluster: SlurmCluster, ids: set[str]) -> dict[str, dict[str, str]]:
    """What could have been changed of these jobs, by their raw numbers."""
    rows = (dict(_FIELD.findall(row)) for row in cluster.run("scontrol", "--oneliner", "show", "job").splitlines())
    return {row["JobId"]: row for row in rows if row.get("JobId") in ids or (not ids and "JobId" in row)}


def acts(cluster: SlurmCluster) -> dict[str, int]:
    """How often each kind of act on a job was asked for since the controller began."""
    kinds = ("KILL_JOB", "UPDATE_JOB", "REQUEUE", "CANCEL", "SUSPEND")
    return {name: count for name, count in rpc_counts(cluster).items() if any(kind in name for kind in kinds)}


def submit_strangers(cluster: SlurmCluster, up_to: int, drawn: random.Random) -> set[str]:
    """Jobs of the same user under every number up to this: some of EJB's names, arrays, and heterogeneous jobs."""
    names = ["held", "given-up", "heat", "runs", "stranger"]
    last = 0
    while last < up_to:
        kind = drawn.choice(["plain", "plain", "array", "het", "ends"])
        more = {"array": ["--array=1-2"], "het": ["--ntasks=1", ":", "--ntasks=1"]}.get(kind, [])
        script = "exit 0" if kind == "ends" else "exec sleep 600"
        cluster.sbatch(f"--job-name={drawn.choice(names)}", "--time=30", *more, script=script)
        last = max(int(row["JobId"]) for row in shown(cluster, set()).values())
    return {id for id, row in shown(cluster, set()).items() if "ejb-" not in row.get("Comment", "")}


async def submit_jobs(manager: Manager) -> dict[str, str]:
    """Two jobs that are passed through, one of which runs, and two elastic ones; name -> id."""
    env = {"PATH": os.environ["PATH"]}
    found: dict[str, str] = {}
    for name, ntasks, elastic in (
        ("runs", "1", "no"),
        ("held", "4", "no"),
        ("given-up", "4", "yes"),
        ("heat", "4", "yes"),
    ):
        over = Overrides(ntasks=ntasks, time="10", name=name, elastic=elastic)
        request = (
            JobRequest(cwd="/tmp", command=("/bin/sleep", "600"), env=env, overrides=over)
            if elastic == "yes"
            else JobRequest(cwd="/tmp", script="#!/bin/sh\nexec sleep 600\n", env=env, overrides=over)
        )
        found[name] = (await manager.submit(read(request), manager.world.runs_as, None, "")).id
    numbered = (
        select(func.count()).select_from(Subjob).where(Subjob.batch_id.is_not(None), Subjob.job_id.in_(found.values()))
    )
    await until(manager, lambda s: s.scalar(numbered) == len(found), "submitted")
    await manager.poller.poll()
    return found


async def until(manager: Manager, ready: Callable[[Session], bool], what: str, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not await manager.store.read(ready):
        assert time.monotonic() < deadline, f"not {what} within {timeout_s:g} s"
        await asyncio.sleep(0.05)


async def ask_for_everything(manager: Manager, jobs: dict[str, str]) -> None:
    """Users cancel and hold, and whatever else the daemon may come to want of its batch jobs is put on the books."""
    await manager.hold(jobs["held"], "me")
    for name in ("runs", "given-up"):
        await manager.cancel(jobs[name], "me")
    kinds = (IntentKind.STAY, IntentKind.BEGIN, IntentKind.RAISE, IntentKind.ASIDE, IntentKind.HOLD, IntentKind.RELEASE)

    def ask(session: Session) -> None:
        for name in ("held", "heat"):
            subjob = session.scalars(select(Subjob).where(Subjob.job_id == jobs[name])).first()
            for kind in kinds:
                add_intent(manager.world.context(session), kind, jobs[name], subjob=subjob)

    await manager.store.write(ask)


def all_tried(session: Session) -> bool:
    """What lets a job begin is tried several times, minutes apart."""
    untried = or_(
        Intent.state == IntentState.EXECUTING, and_(Intent.state == IntentState.PENDING, Intent.attempts == 0)
    )
    acts = select(func.count()).select_from(Intent).where(untried, Intent.kind != IntentKind.SUBMIT)
    return session.scalar(acts) == 0


@pytest.mark.sampled(10)
@pytest.mark.parametrize("round", range(ROUNDS))
async def test_no_stranger_is_touched_or_believed(cluster: SlurmCluster, tmp_path: Path, round: int) -> None:
    drawn = random.Random(round)
    lives, older = (round < 10) == (round % 2 == 0), round % 4 < 2
    cluster.empty()
    come_back(cluster, None)
    cluster.sbatch("--job-name=blocker", "--ntasks=3", "--time=60", script="exec sleep 3600")
    state = cluster.saved().read_bytes() if older else None

    async def play(manager: Manager, jobs: dict[str, str]) -> None:
        """What the daemon does among the strangers. The controller itself counts what is asked of it."""
        before, asked = shown(cluster, strangers), acts(cluster)
        if lives:
            await ask_for_everything(manager, jobs)
        for _ in range(3):
            await manager.poller.poll()
            await until(manager, all_tried, "done with what was asked for")
        assert acts(cluster) == asked, "something was done to a batch job"
        after = shown(cluster, strangers)
        for id, row in before.items():
            for field in ("TimeLimit", "NumCPUs", "Requeue", "Restarts"):
                assert after[id][field] == row[field], (id, field, row, after[id])
            assert after[id]["JobState"] != "CANCELLED" and (after[id]["Priority"] != "0" or row["Priority"] == "0")
        states = await manager.store.read(lambda s: {job.name: job.state for job in s.scalars(select(Job))})
        assert states["runs"] in ("ending", "cancelled", "running") and states["given-up"] in ("ending", "cancelled")
        assert states["held"] == states["heat"] == "waiting", f"a stranger was taken for one of them: {states}"

    async with elastic_manager(cluster, tmp_path) as (manager, _):
        jobs = await submit_jobs(manager)
        highest = max(
            int(id) for id in await manager.store.read(lambda s: s.scalars(select(Subjob.batch_id)).all()) if id
        )
        if lives:
            come_back(cluster, state)
            strangers = submit_strangers(cluster, highest, drawn)
            await play(manager, jobs)
        else:
            controller(cluster, signal.SIGSTOP)
            await ask_for_everything(manager, jobs)
            await asyncio.sleep(drawn.uniform(0.0, 0.5))  # some of it is under way
    if not lives:
        come_back(cluster, state)
        strangers = submit_strangers(cluster, highest, drawn)
        async with elastic_manager(cluster, tmp_path) as (manager, _):
            await play(manager, jobs)


async def test_an_act_does_not_wait_for_a_controller_that_is_away(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between the look and the act. Slurm's commands would ask on until another one is there."""
    cluster.empty()
    come_back(cluster, None)
    strangers = submit_strangers(cluster, 8, random.Random(3))
    state = cluster.saved().read_bytes()
    come_back(cluster, None)
    cluster.sbatch("--job-name=blocker", "--ntasks=3", "--time=60", script="exec sleep 3600")
    async with elastic_manager(cluster, tmp_path) as (manager, _):
        jobs = await submit_jobs(manager)
        numbers = await manager.store.read(lambda s: {*s.scalars(select(Subjob.batch_id))})
        assert numbers - {None} <= strangers
        run, back = Commands.run, threading.Event()
        act_ended = threading.Event()

        def bring_back() -> None:
            act_ended.wait(4)
            come_back(cluster, state)
            back.set()

        async def without_a_controller(self: Commands, argv: Sequence[str], **more: Any) -> CommandResult:
            if argv[0] != "scancel" or act_ended.is_set():
                return await run(self, argv, **more)
            controller(cluster, signal.SIGKILL)
            bringing = asyncio.create_task(asyncio.to_thread(bring_back))
            try:
                return await run(self, argv, **more)
            finally:
                act_ended.set()
                await bringing

        monkeypatch.setattr(Commands, "run", without_a_controller)
        await manager.cancel(jobs["held"], "me")
        await until(manager, lambda _: back.is_set(), "back")
        assert not acts(cluster), "something was done to a batch job"
        await manager.poller.poll()
        await until(manager, all_tried, "done with what was asked for")
        assert not acts(cluster), "something was done to a batch job"
