"""The live world: one asyncio process that observes, decides and acts.

Everything that changes state is a function of one transaction and runs on the store's one writer thread. Polls, reports
of workers, requests of users and results of the executor come one after the other. The event loop only waits, for the
timer, the batch system, workers and users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.batch.base import TellsChanges
from ejbd.errors import EjbError
from ejbd.manager.facts.placing.checkpointing import recent_offers
from ejbd.manager.listening.calls import WorkerCalls
from ejbd.manager.listening.hearing import LISTEN_S, Hearing
from ejbd.manager.poll.looks import Looks
from ejbd.manager.poll.neighbours import Neighbours
from ejbd.manager.poll.poller import Poller
from ejbd.manager.poll.restored import adopt_known
from ejbd.manager.requests.condition import Condition
from ejbd.manager.requests.entrance import Entrance
from ejbd.manager.requests.jobs import JobRequests
from ejbd.manager.requests.site import SiteRequests
from ejbd.manager.service.daytimes import DayTimes
from ejbd.manager.service.ends import EndNotes
from ejbd.manager.service.health import Health
from ejbd.manager.service.hindsight import Hindsight
from ejbd.manager.service.mailer import Mailer
from ejbd.manager.service.news import News
from ejbd.manager.service.pruning import prune
from ejbd.manager.service.spool_watch import SpoolWatch
from ejbd.manager.service.telemetry import Telemetry
from ejbd.manager.tasks.acting import Acting
from ejbd.manager.tasks.every import every
from ejbd.manager.tasks.flowing import Flowing
from ejbd.manager.tasks.lookout import Lookout
from ejbd.manager.world import World
from ejbd.store.models import Worker
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

TELL_S = 2.0  # between two tries to tell workers where the daemon is, where a spool could not be written


class Manager:
    """The daemon without its network: its parts, each given what it needs, and what the API asks of them.

    `start` begins to poll; `stop` ends without harm to any job. `on_rival` is called where it has to end for another.
    """

    def __init__(self, world: World) -> None:
        settings, store, batch = world.settings, world.store, world.batch
        self.settings, self.store, self.world = settings, store, world
        self.telemetry = Telemetry(batch.command_counts)
        self.spool_watch = SpoolWatch(world, lambda: self.on_rival())
        self.end_notes = EndNotes(world)
        self.watch = Health(settings, store, spool=self.spool_watch.fault)
        self.acting = Acting(world, self.watch)
        self.hearing = Hearing(world.clock, world.memory.seen)
        self.looks = Looks(settings.poll_s, settings.limits.early_looks)
        self.neighbours = Neighbours(world)
        self.poller = Poller(
            world, self.looks, self.neighbours, self.hearing, self.watch, self.telemetry, self.acting.work.set
        )
        self.lookout = Lookout(self.looks, self.poller.poll)
        self.calls = WorkerCalls(settings, store, world.hands, world.clock, world.context, world.memory.seen)
        self.news = News(store)
        self.entrance = Entrance(world, self.poller)
        self.flowing = Flowing(self.entrance.workflows)
        kept_days, others = settings.limits.others_retention_days, self.neighbours.others
        self.hindsight = Hindsight(store, kept_days, world.clock, lambda: world.view, others, batch)
        self.prune = partial(prune, world)
        self._mailer = Mailer(settings, store, batch, world.clock)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.on_rival: Callable[[], None] = lambda: None
        self._serve()

    def _serve(self) -> None:
        """What the API asks (`ejbd/api/port.py`), and the part that answers."""
        entrance, calls = self.entrance, self.calls
        self.refuse_others, self.submit, self.plan = entrance.refuse_others, entrance.submit, entrance.plan
        self.check_workflow, self.submit_workflow = entrance.check_workflow, entrance.submit_workflow
        self.cancel_workflow, self.retry_workflow = entrance.workflows.cancel, entrance.workflows.retry

        jobs = JobRequests(self.world, self.poller, self.news)
        self.cancel, self.cancel_elements, self.signal = jobs.cancel, jobs.cancel_elements, jobs.signal
        self.hold, self.release = jobs.hold, jobs.release
        self.number, self.number_read = jobs.number, jobs.number_read
        self.evolve, self.resize = jobs.evolve, jobs.resize
        self.explain, self.planned = jobs.explain, jobs.planned
        self.read_output = self.world.hands.output

        site = SiteRequests(self.world, self.poller)
        self.windows, self.cluster = site.windows, site.cluster
        self.queues, self.set_queue, self.resume_queue = site.queues, site.set_queue, site.resume_queue
        self.set_queue_window, self.clear_queue_windows = site.set_queue_window, site.clear_queue_windows
        self.drains, self.drain, self.cancel_drain = site.drains, site.drain, site.cancel_drain

        self.subjob_secret, self.register_worker, self.worker_reports = calls.secret, calls.register, calls.reports
        self.worker_operations, self.elastic_call = calls.operations, calls.elastic

        condition = Condition(self.world, self.poller, self.watch, self._no_task_acts)
        self.faults, self.health = condition.faults, condition.health
        self.refuse_if_closed = self.world.refuse_if_closed
        self.wait_for_events = self.news.wait_for_events
        self.between_polls = self.poller.between

    async def start(self) -> None:
        """Look for the spool, and begin. Where it is away, or another daemon's, only health is told until it is not."""
        await self._try_spool(first=True)
        self._begin("health", self.watch.watch(self._try_spool))

    async def _try_spool(self, *, first: bool = False) -> None:
        await self.spool_watch.look(first=first)
        if self.spool_watch.is_open and "executor" not in self._tasks:
            if self.spool_watch.later is not None:
                await self._adopt_known(self.spool_watch.later)
            if self.spool_watch.later is None:
                await self._begin_work()
        if self.spool_watch.fault() is None:
            await self.end_notes.note()

    async def _adopt_known(self, later: int) -> None:
        try:
            await adopt_known(self.world, await self.world.batch.observe(), later)
        except EjbError as error:
            self.world.closed = error  # and it is tried again
        else:
            self.world.closed = self.spool_watch.later = None

    async def _begin_work(self) -> None:
        """Take up what an earlier daemon left, and begin to poll."""
        world, store, batch = self.world, self.store, self.world.batch
        await store.write(self.recover)
        await self._mailer.begin()
        store.on_commit(self.woken)
        self.news.told = True
        self._begin("executor", self.acting.run())
        self.acting.work.set()
        self._begin("polls", self.lookout.run())
        if isinstance(batch, TellsChanges):
            self._begin("changes", self.lookout.hear_changes(batch))
        if self.settings.traits.begins_at_once and not world.hands.by_user:
            self._begin("told", self.lookout.hear_file(world.spool.make_told_file()))
        self._begin("workflows", self.flowing.run())
        self._begin("hearing", every(LISTEN_S, self.hearing.listen))
        self._begin("times-of-day", DayTimes(self.settings, store, world.clock, self.prune).run())
        self._begin("hindsight", self.hindsight.run())
        self._begin("spool-speed", self._measure_spool())
        self._begin("mails", self._mailer.run())
        self._begin("telling", every(TELL_S, self._tell_workers))

    def _begin(self, name: str, task: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(task, name=name)

    def _no_task_acts(self) -> bool:
        return "executor" in self._tasks and self._tasks["executor"].done()

    async def stop(self) -> None:
        """Let what is under way end within a bound. Jobs, workers and ranks live on."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.acting.executor.stop()
        await self.world.batch.close()
        await self.spool_watch.end()

    def publish(self, url: str) -> None:
        """Tell workers where to find this daemon, once it has begun."""
        self.world.hands.publish(self.settings.advertise_url or url)

    def recover(self, session: Session) -> None:
        """Take up what an earlier daemon left in the database."""
        self.acting.executor.recover(session)
        now = self.world.clock()
        for worker in session.scalars(select(Worker).where(Worker.alive)):
            # They could not reach us while we were away; but what they were silent before that counts.
            self.world.memory.seen[worker.id] = now - (worker.silent_s or 0.0)
        self.world.memory.offers = recent_offers(session)
        add_event(session, EventKind.DAEMON_STARTED, now)

    def woken(self, topics: frozenset[str]) -> None:
        """There has been a commit: the parts that wait for one are told."""
        self.acting.woken(topics)
        self.flowing.woken(topics)
        self.lookout.woken(topics)
        self.calls.wake(topics)
        self._mailer.woken(topics)
        self.news.woken(topics)

    async def _tell_workers(self) -> None:
        await asyncio.to_thread(self.world.hands.tell)

    async def _measure_spool(self) -> None:
        """How fast the spool is, for as long as no checkpoint has told."""
        self.world.spool_speed = await asyncio.to_thread(self.world.spool.measure_speed)
