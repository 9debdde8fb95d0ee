"""A daemon that dies at a crash point of the fake world, and what goes on around it: users, workers, another daemon.

The very `reach` of the manager decides when; in place of SIGKILL it raises what nothing catches. The manager is thrown
away, and another one is made on the same database.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from sqlalchemy import select

from ejbd.core.view import BatchState
from ejbd.manager import crashpoints
from ejbd.manager.crashpoints import CrashPoint
from ejbd.store.models import Intent, Job
from tests.fakes.live import LiveWorld, Worker

T = TypeVar("T")


class Killed(BaseException):
    """Not an Exception: what would survive a fault must not survive this."""


class Trap:
    """What `reach` takes for the module `os`: the environment that names the point, and who is killed."""

    def __init__(self, point: CrashPoint, nth: int) -> None:
        self.environ = self
        self.deaths = 0
        self.dead = False
        self._wanted = f"{point.value}:{nth}"

    def get(self, name: str) -> str:
        assert name == "EJBD_CRASH_AT"
        if self.dead:  # none of its tasks comes any further
            raise Killed
        return self._wanted

    def getpid(self) -> int:
        return 0

    def kill(self, _pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        self.deaths += 1
        self.dead = True
        raise Killed


class Counting(Trap):
    """Kills nobody: how often each point is come to."""

    def __init__(self) -> None:
        super().__init__(CrashPoint.JOB_AFTER_COMMIT, 0)
        self.times: Counter[str] = Counter()

    def get(self, name: str) -> Any:
        return self

    def partition(self, _by: str) -> tuple[Counting, str, str]:
        return self, "", ""

    def __ne__(self, point: object) -> bool:  # `reach` asks whether another point is wanted
        self.times[str(point)] += 1
        return True

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def caught_by(trap: Trap) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crashpoints, "os", trap)
        patch.setattr(crashpoints, "_counts", {})
        yield


class Operator:
    """Starts the daemon again when it has died. Users and workers repeat what it had not answered."""

    def __init__(self, live: LiveWorld, trap: Trap) -> None:
        self.live = live
        self.trap = trap

    async def ask(self, action: Callable[[], Awaitable[T]]) -> T:
        for _ in range(3):
            try:
                return await action()
            except Killed:
                assert self.trap.deaths == 1, "it died twice"
                self.trap.dead = False
                await self.live.restart()
                for worker in self.live.workers.values():
                    worker.lost_us = bool(worker.id)
        raise AssertionError("the daemon died again")

    async def poll(self, seconds: float = 2.0) -> None:
        await self.ask(lambda: self.live.poll(seconds))

    async def turn(self, starts: Callable[[str], bool] = lambda tag: False) -> None:
        """A few seconds: the batch system starts of what waits what it `starts`, workers come and do as they are told.

        Fails where a rank runs twice.
        """
        await self.poll()
        for one in self.live.batch.live():
            if one.state is BatchState.PENDING and not one.blocked and starts(one.name):
                self.live.batch.start(one.name)
        for subjob in [one.name.removeprefix("ejb-") for one in self._running() if starts(one.name)]:
            worker = self.live.workers.setdefault(subjob, Worker(self.live, subjob, self._processors(subjob)))
            if not worker.id:
                await self.ask(worker.register)
        await self.work()

    async def work(self) -> None:
        for _ in range(2):
            for worker in self.live.workers.values():
                if worker.id and not self.live.batch.of(f"ejb-{worker.subjob}").state.ended:
                    if worker.lost_us:
                        await self.ask(worker.register)
                    await self.ask(worker.work)
            self._one_copy_only()

    async def ranks_end(self, epoch: int) -> None:
        """All ranks of a placement exit with 0: each worker tells of half of them, then of the others."""
        for worker in list(self.live.workers.values()):
            ranks = worker.ranks.pop(epoch, [])
            for some in (ranks[::2], ranks[1::2]):
                for rank in some:
                    worker.keep("rank-exit", epoch=epoch, rank=rank, code=0)
                if worker.lost_us:
                    await self.ask(worker.register)
                await self.ask(worker.send)

    async def until(self, ready: Callable[[], bool], starts: Callable[[str], bool] = lambda tag: False) -> None:
        for _ in range(60):
            if ready():
                return
            await self.turn(starts)
        raise AssertionError(f"that never came\n{self.live.batch.calls}\n{list(self.live.batch.jobs.values())}")

    def has_begun(self, tag: str) -> bool:
        return any(one.name == tag and one.start_s is not None for one in self.live.batch.jobs.values())

    def _running(self) -> list[Any]:
        return [one for one in self.live.batch.live() if one.state is BatchState.RUNNING]

    def _processors(self, subjob: str) -> int:
        return self.live.batch.of(f"ejb-{subjob}").processors

    def _one_copy_only(self) -> None:
        alive = {one.name.removeprefix("ejb-") for one in self._running()}
        ranks = Counter(
            (subjob.partition(".")[0], rank)
            for subjob, worker in self.live.workers.items()
            if subjob in alive
            for of_epoch in worker.ranks.values()
            for rank in of_epoch
        )
        assert not [rank for rank, count in ranks.items() if count > 1], f"two copies of a rank: {ranks}"


async def nothing_lost_or_doubled(operator: Operator, job: str) -> None:
    """One job, each of its subjobs one batch job and the other way round, and nothing is left to be done."""
    live = operator.live
    await operator.until(lambda: not live.batch.live())
    for _ in range(2):
        await operator.poll(40)
    assert live.store.read_sync(lambda s: list(s.scalars(select(Job.id)))) == [job], "one submission, one job"
    tags = {f"ejb-{s.id}": s.batch_id for s in live.subjobs(job) if s.batch_id is not None}
    assert {one.name: one.id for one in live.batch.jobs.values()} == tags
    assert len(live.batch.jobs) == len(tags), f"more than one batch job under a tag: {list(live.batch.jobs.values())}"
    states = live.store.read_sync(lambda s: Counter(s.scalars(select(Intent.state))))
    assert not {"pending", "executing", "unknown"} & set(states), states
    assert "job.fault" not in live.kinds(job)
