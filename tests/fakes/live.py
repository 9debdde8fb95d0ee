"""A manager with a batch system in memory and workers that obey, for tests that start no process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import event, select
from sqlalchemy.orm import Session

from ejbd.config import Elasticity, Limits, QueueSettings, Settings
from ejbd.manager.acts.executor import Executor
from ejbd.manager.facts.clock import SteadyClock
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import JobKind, JobRequest, JobSpec, Overrides, Reading, read
from ejbd.manager.manager import Manager
from ejbd.manager.protocol.worker_models import Operations
from ejbd.manager.submission.told import ToldPlan
from ejbd.manager.world import World
from ejbd.store.models import Epoch, Event, Intent, Job, Launch, Subjob
from ejbd.store.store import Store
from tests.fakes.batch import Clock, MemoryBatch
from tests.fakes.told_events import check_events

T = TypeVar("T")


def some(value: T | None) -> T:
    """What has to be there, for a test to look into it."""
    assert value is not None
    return value


class Worker:
    """Speaks the worker's end of the protocol; `fail` names operation kinds that go wrong."""

    def __init__(self, world: LiveWorld, subjob: str, processors: int, node: str = "n1") -> None:
        self.world = world
        self.subjob = subjob
        self.processors = processors
        self.node = node
        self.id = ""
        self.n = 0
        self.unsent: list[dict[str, Any]] = []  # reports that the daemon has not answered
        self.lost_us = False  # the daemon has died since: it registers again
        self.ranks: dict[int, list[int]] = {}
        self.done: list[tuple[str, dict[str, Any]]] = []
        self.fail: dict[str, dict[str, Any]] = {}
        self.deaf: set[str] = set()
        self.takes: dict[str, float] = {}  # seconds by kind of operation, in which the clock moves on
        self.rank_bytes = 10

    @property
    def secret(self) -> str:
        job = self.subjob.partition(".")[0]
        path = self.world.spool_of(job).subjob_dir(job, self.subjob) / "subjob.json"
        return str(json.loads(path.read_text())["secret"])

    async def register(self, boot: str = "a") -> None:
        answer = await self.world.manager.register_worker(
            self.subjob,
            {
                "node": self.node,
                "processors": self.processors,
                "host": "h",
                "pid": 1,
                "address": "127.0.0.1",
                "boot": f"{boot}-{self.subjob}-{self.node}",
                **({} if self.world.engines is None else {"engines": self.world.engines}),
            },
        )
        self.id, self.lost_us = answer["worker"], False

    async def report(self, kind: str, **fields: Any) -> None:
        self.keep(kind, **fields)
        await self.send()

    def keep(self, kind: str, **fields: Any) -> None:
        self.n += 1
        self.unsent.append({"n": self.n, "kind": kind, **fields})

    async def send(self) -> None:
        """What a daemon that died had not answered is told again."""
        if self.unsent:
            await self.world.manager.worker_reports(self.subjob, self.id, list(self.unsent))
            self.unsent.clear()

    async def work(self) -> list[str]:
        """Fetch what there is and answer it; the kinds that were carried out."""
        await self.send()
        found = await self.world.manager.worker_operations(self.subjob, self.id, 0, 0)
        Operations.model_validate({"operations": found})  # as the daemon's door does: a worker would get nothing else
        kinds = []
        for operation in found:
            kind, payload = operation["kind"], operation["payload"]
            if kind in self.deaf:
                continue
            kinds.append(kind)
            self.done.append((kind, payload))
            epoch = operation["epoch"] or 0
            data: dict[str, Any] = {}
            ok = True
            self.world.clock.now += self.takes.get(kind, 0.0)
            if kind in self.fail:
                ok, data = False, self.fail[kind]
            elif kind == "launch":
                self.ranks[epoch] = [r["rank"] for r in payload["ranks"]]
            elif kind == "checkpoint":
                ranks = self.ranks.pop(epoch, [])
                data = {"exits": {str(r): 85 for r in ranks}, "bytes": {str(r): self.rank_bytes for r in ranks}}
                data |= {"seconds": self.takes.get(kind, 0.1), "write_s": self.takes.get(kind, 0.1) / 2}
            elif kind == "stop":
                data = {"exits": {str(r): 143 for r in self.ranks.pop(epoch, [])}}
            await self.report("result", seq=operation["seq"], ok=ok, error="" if ok else f"{kind} failed", data=data)
        return kinds

    async def finish_ranks(self, epoch: int, code: int = 0) -> None:
        for rank in self.ranks.pop(epoch, []):
            await self.report("rank-exit", epoch=epoch, rank=rank, code=code)


def hold_to_the_catalogue(store: Store) -> None:
    """Have every event looked at when the store is closed, at the end of its test."""
    close = store.close

    def closed() -> None:
        store.close = close  # type: ignore[method-assign]
        store.read_sync(check_events)
        close()

    if not getattr(store.close, "__closure__", None):
        store.close = closed  # type: ignore[method-assign]


WRITES = ("INSERT", "UPDATE", "DELETE")


class Changes:
    """Whether a store's rows were written to since it was last asked."""

    def __init__(self, store: Store) -> None:
        self._seen = False
        event.listen(store._writer, "before_cursor_execute", self._executed)

    def _executed(self, _connection: object, _cursor: object, statement: str, *_more: object) -> None:
        self._seen = self._seen or statement.startswith(WRITES)

    def any(self) -> bool:
        seen, self._seen = self._seen, False
        return seen


def reads_at_once(store: Store) -> None:
    """Have rows read on the event loop's thread: each turn of another thread is a wait for the processor."""

    async def read(fn: Callable[[Session], T]) -> T:
        await asyncio.sleep(0)  # what else is under way has its turn, as it would
        return store.read_sync(fn)

    store.read = read  # type: ignore[method-assign]


class LiveWorld:
    """A manager, its store, its batch system and its workers, all driven by hand."""

    def __init__(self, folder: Path, store: Store, **queue: Any) -> None:
        hold_to_the_catalogue(store)
        reads_at_once(store)
        self.changes = Changes(store)
        self.clock = Clock()
        self.set_by_s = 0.0  # somebody sets the clock of the daemon's machine
        self.daemon_clock = self._new_clock()
        self.folder = folder
        self.batch = self._new_batch()
        self.store = store
        given: dict[str, Any] = {"elasticity": Elasticity.ON, "lambda_s": 5.0, "first_checkpoint_s": 0.0}
        self.settings = Settings(
            state_dir=folder,
            poll_s=5.0,
            time_zone="UTC",
            limits=Limits(start_grace_s=30, missing_grace_s=30, settle_s=5, worker_silence_s=60),
            queues={"default": QueueSettings(**(given | queue))},
        )
        self.manager = self._new_manager()
        self.manager.world.spool.prepare()
        self.executor = Executor(
            store,
            self.batch,
            self.settings,
            self.manager.world.hands,
            self.manager.world.context,
            self.daemon_clock,
            patience_s=60.0,  # what is slow here is the machine
        )
        self.workers: dict[str, Worker] = {}
        self.engines: list[str] | None = None  # that workers tell of; None: nothing

    def _new_clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.clock.now + self.set_by_s, lambda: self.clock.now)

    def _new_batch(self) -> MemoryBatch:
        return MemoryBatch(self.clock)

    def _new_manager(self) -> Manager:
        manager = Manager(World(self.settings, self.store, self.batch, clock=self.daemon_clock, runs_as="ada"))
        manager.world.spool.worker = self.folder / "w.pyz"
        return manager

    def spool_of(self, job: str) -> Spool:
        """Where the files of a job are."""
        return self.manager.world.spool

    async def restart(self) -> None:
        """A new daemon on the same store, as after a crash."""
        self.daemon_clock = self._new_clock()
        self.manager = self._new_manager()
        self.executor = Executor(
            self.store,
            self.batch,
            self.settings,
            self.manager.world.hands,
            self.manager.world.context,
            self.daemon_clock,
            patience_s=60.0,  # what is slow here is the machine
        )
        self.manager.acting.executor = self.executor
        await self.store.write(self.manager.recover)

    def reading(self, processes: int = 16, walltime_s: float = 100.0, **spec: Any) -> Reading:
        """A job as its submission is read."""
        given: dict[str, Any] = {
            "name": "heat",
            "kind": JobKind.COMMAND,
            "argv": ("./heat",),
            "processes": processes,
            "walltime_s": walltime_s,
            "cwd": str(self.folder),
            "output": "ejb-%j.out",
            "engine": "application",
        }
        return Reading(JobSpec(**(given | spec)))

    async def submit(
        self, processes: int = 16, walltime_s: float = 100.0, user: str = "ada", rounds: int = 4, **spec: Any
    ) -> str:
        job = (await self.manager.submit(self.reading(processes, walltime_s, **spec), user, None, "hash")).id
        await self.act(rounds)
        return job

    async def submit_as_asked(self, command: tuple[str, ...], **overrides: Any) -> str:
        """As a command line has it; nothing is done with it yet."""
        given = Overrides(engine="application", **overrides)
        asked = JobRequest(cwd=str(self.folder), command=command, overrides=given)
        return (await self.manager.submit(read(asked), "ada", None, "hash")).id

    async def submit_script(self, script: str) -> str:
        """As its lines have it; nothing is done with it yet."""
        return (
            await self.manager.submit(read(JobRequest(cwd=str(self.folder), script=script)), "ada", None, "hash")
        ).id

    async def plan(self, **spec: Any) -> ToldPlan:
        """What a submission would lead to."""
        return await self.manager.plan(self.reading(**spec), "ada")

    async def act(self, rounds: int = 4) -> None:
        """Carry out every intent that is due now, in so many rounds at most: one that writes nothing is the last."""
        for _ in range(rounds):
            self.changes.any()
            await self.manager.entrance.workflows.advance()
            await self.store.write(self.manager.acting.receiving.receive)
            await self.executor.run_due()
            if not self.changes.any():
                return

    async def poll(self, seconds: float = 0.0, *, heartbeats: bool = True, rounds: int = 4) -> None:
        """Time passes, the manager looks and acts."""
        self.clock.now += seconds
        if heartbeats:
            self.manager.world.memory.seen.update(dict.fromkeys(self.manager.world.memory.seen, self.daemon_clock()))
        await self.manager.poller.poll()
        await self.act(rounds)

    async def work(self, rounds: int = 6) -> None:
        """Let all workers do what they are told, in so many rounds at most: one that writes nothing is the last."""
        for _ in range(rounds):
            self.changes.any()
            for worker in list(self.workers.values()):
                if worker.id and not self.batch.of(f"ejb-{worker.subjob}").state.ended:
                    await worker.work()
            if not self.changes.any():
                return

    async def arrive(self, subjob: str) -> Worker:
        """The batch system starts a subjob, and its one worker comes. It has not asked yet what to do."""
        self.batch.start(f"ejb-{subjob}")
        await self.poll()
        worker = Worker(self, subjob, self.batch.of(f"ejb-{subjob}").processors)
        self.workers[subjob] = worker
        await worker.register()
        return worker

    async def begin(self, subjob: str) -> Worker:
        """The batch system starts a subjob, and its one worker comes and does what it is told."""
        worker = await self.arrive(subjob)
        await self.work()
        return worker

    # -- what is in the store -----------------------------------------------------------------------------------------

    def job(self, id: str) -> Job:
        return self.store.read_sync(lambda s: s.scalars(select(Job).where(Job.id == id)).one())

    def subjobs(self, id: str) -> list[Subjob]:
        return self.store.read_sync(
            lambda s: list(s.scalars(select(Subjob).where(Subjob.job_id == id).order_by(Subjob.ordinal)))
        )

    def epochs(self, id: str) -> list[Epoch]:
        return self.store.read_sync(
            lambda s: list(s.scalars(select(Epoch).where(Epoch.job_id == id).order_by(Epoch.number)))
        )

    def launches(self, id: str) -> list[Launch]:
        return self.store.read_sync(lambda s: list(s.scalars(select(Launch).where(Launch.job_id == id))))

    def intents(self, kind: str) -> list[Intent]:
        return self.store.read_sync(lambda s: list(s.scalars(select(Intent).where(Intent.kind == kind))))

    def events(self, id: str) -> list[tuple[str, dict[str, Any]]]:
        rows = self.store.read_sync(
            lambda s: list(s.scalars(select(Event).where(Event.job_id == id).order_by(Event.id)))
        )
        return [(row.kind, row.data) for row in rows]

    def kinds(self, id: str) -> list[str]:
        return [kind for kind, _ in self.events(id)]
