"""How much a poll asks of a real Slurm: batch commands counted in the adapter, and RPCs counted by the controller."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.batch.pbs import PbsBatch
from ejbd.batch.slurm import SlurmBatch
from ejbd.config import Elasticity, QueueSettings, Settings
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.manager import Manager
from ejbd.manager.world import World
from ejbd.store.models import Intent, Subjob
from ejbd.store.states import IntentState, SubjobState
from ejbd.store.store import Store
from tests.integration.slurm_clusters import SlurmCluster

_RPC = re.compile(r"^\s+(REQUEST_\w+)\s*\(\s*\d+\)\s+count:(\d+)", re.MULTILINE)
_OWN = "REQUEST_STATS_INFO"  # sdiag's


@dataclass(frozen=True, slots=True)
class PollLoad:
    """What `polls` polls asked of the batch system while `waiting` elastic jobs waited. `seconds`: of each poll."""

    waiting: int
    polls: int
    commands: dict[str, int]
    rpcs: dict[str, int]
    seconds: tuple[float, ...]

    @property
    def commands_a_poll(self) -> float:
        return sum(self.commands.values()) / self.polls


def occupy(cluster: SlurmCluster) -> str:
    """Hold every processor, so that whatever comes after has to wait."""
    whole = (f"--nodes={cluster.nodes}", f"--ntasks-per-node={cluster.cpus}", "--time=120")
    id = cluster.sbatch("--job-name=blocker", *whole, script="exec sleep 7200")
    cluster.until(lambda: cluster.states().get(id) == "RUNNING", "the blocker did not start")
    return id


@asynccontextmanager
async def elastic_manager(cluster: SlurmCluster, folder: Path) -> AsyncIterator[tuple[Manager, SlurmBatch]]:
    """A manager whose polls are the caller's: its own timer rests."""
    batch = cluster.batch()
    async with manager_on(batch, folder) as manager:
        yield manager, batch


@asynccontextmanager
async def manager_on(batch: SlurmBatch | PbsBatch, folder: Path) -> AsyncIterator[Manager]:
    """The same on any adapter."""
    queues = {"default": QueueSettings(elasticity=Elasticity.ON)}
    settings = Settings(state_dir=folder, batch=batch.name, poll_s=3600, queues=queues)
    store = Store(settings.url_of_database)
    try:
        store.acquire_single_writer()
        store.upgrade()
        manager = Manager(World(settings, store, batch))
        await manager.start()
        try:
            yield manager
        finally:
            await manager.stop()
    finally:
        store.close()


async def submit_until(manager: Manager, waiting: int, timeout_s: float) -> float:
    """Submit elastic jobs until `waiting` of them wait at the batch system. Returns the seconds that it took.

    Raises TimeoutError.
    """
    begun = time.monotonic()
    pending = select(func.count()).select_from(Subjob).where(Subjob.state == SubjobState.PENDING)
    under_way = select(func.count()).where(Intent.state.in_((IntentState.PENDING, IntentState.EXECUTING)))

    def counted(session: Session) -> tuple[int, int]:
        return session.scalar(pending) or 0, session.scalar(under_way) or 0

    overrides = Overrides(ntasks="16", time="10")
    request = JobRequest(cwd="/", command=("/bin/true",), env={"PATH": "/usr/bin:/bin"}, overrides=overrides)
    already, _ = await manager.store.read(counted)
    for _ in range(waiting - already):
        await manager.submit(read(request), manager.world.runs_as, None, "")
    while (found := await manager.store.read(counted)) != (waiting, 0):
        if time.monotonic() > begun + timeout_s:
            raise TimeoutError(f"{found[0]} of {waiting} jobs wait after {timeout_s:g} s")
        await asyncio.sleep(0.1)
    return time.monotonic() - begun


async def poll_load(cluster: SlurmCluster, manager: Manager, batch: SlurmBatch, waiting: int, polls: int) -> PollLoad:
    """Poll `polls` times and count. Raises RuntimeError where a poll found no answer."""
    await manager.poller.poll()  # first sights and promises, which are noted once
    failed = manager.poller.failed_polls
    await asyncio.to_thread(cluster.run, "sdiag", "--reset")
    rpcs = await asyncio.to_thread(rpc_counts, cluster)
    commands = Counter({name: count.calls for name, count in batch.commands.counts.items()})
    seconds = []
    for _ in range(polls):
        begun = time.monotonic()
        await manager.poller.poll()
        seconds.append(time.monotonic() - begun)
    after = Counter({name: count.calls for name, count in batch.commands.counts.items()})
    asked = await asyncio.to_thread(rpc_counts, cluster)
    if manager.poller.failed_polls != failed:
        raise RuntimeError(f"{manager.poller.failed_polls - failed} polls were not answered: {manager.poller.error}")
    return PollLoad(waiting, polls, dict(after - commands), dict(asked - rpcs), tuple(seconds))


def rpc_counts(cluster: SlurmCluster) -> Counter[str]:
    """What clients have asked of the controller since the last reset, by kind; sdiag's own questions are left out."""
    by_kind = cluster.run("sdiag").partition("by message type")[2].partition("by user")[0]
    return Counter({name: int(count) for name, count in _RPC.findall(by_kind) if name != _OWN})
