"""The live world: one asyncio process that observes, decides and acts.

Everything that changes state is a function of one transaction and runs on the store's one writer thread. Polls, reports
of workers, requests of users and results of the executor come one after the other. The event loop only waits, for the
timer, the batch system, workers and users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.batch.base import TellsChanges
from ejbd.manager.facts.placing.checkpointing import recent_offers
from ejbd.manager.listening.calls import WorkerCalls
from ejbd.manager.listening.hearing import LISTEN_S, Hearing
from ejbd.manager.poll.looks import Looks
from ejbd.manager.poll.neighbours import Neighbours
from ejbd.manager.poll.poller import Poller
from ejbd.manager.requests.condition import Condition
from ejbd.manager.requests.entrance import Entrance
from ejbd.manager.requests.jobs import JobRequests
from ejbd.manager.requests.site import SiteRequests
from ejbd.manager.service.daytimes import DayTimes
from ejbd.manager.service.health import Health
from ejbd.manager.service.hindsight import Hindsight
from ejbd.manager.service.mailer import Mailer
from ejbd.manager.service.news import News
from ejbd.manager.service.pruning import prune
from ejbd.manager.service.telemetry import Telemetry
from ejbd.manager.tasks.acting import Acting
from ejbd.manager.tasks.every import every
from ejbd.manager.tasks.flowing import Flowing
from ejbd.manager.tasks.lookout import Lookout
from ejbd.manager.world import World
from ejbd.store import marks
from ejbd.store.models import Job, Subjob, Worker
from ejbd.store.states import LIVING_JOB
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

TELL_S = 2.0  # between two tries to tell workers where the daemon is, where a spool could not be written


class Manager:
    """The daemon without its network: its parts, each given what it needs, and what the API asks of them.

    `start` begins to poll; `stop` ends without harm to any job.
    """

    def __init__(self, world: World) -> None:
        settings, store, batch = world.settings, world.store, world.batch
        self.settings, self.store, self.world = settings, store, world
        self.telemetry = Telemetry(batch.command_counts)
        self.watch = Health(settings, store)
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
        self.wait_for_events = self.news.wait_for_events
        self.between_polls = self.poller.between

    async def start(self) -> None:
        """Prepare the spool, take up what an earlier daemon left, and begin to poll."""
        world, store, batch = self.world, self.store, self.world.batch
        world.spool.prepare()
        database, new = await store.write(marks.identity)
        expected = await store.read(_with_files)
        world.spool.claim_for(database, new, world.hands.in_own(expected))
        world.hands.begin(expected.values(), database)
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
        self._begin("spool-speed", self._try_spool())
        self._begin("health", self.watch.watch())
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

    def publish(self, url: str) -> None:
        """Tell workers where to find this daemon."""
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

    async def _try_spool(self) -> None:
        """How fast the spool is, for as long as no checkpoint has told."""
        self.world.spool_speed = await asyncio.to_thread(self.world.spool.measure_speed)


def _with_files(session: Session) -> dict[str, str]:
    """Jobs that are not over and of which the batch system has had something, each with its user."""
    query = select(Job.id, Job.user).join(Subjob, Subjob.job_id == Job.id)
    found = session.execute(query.where(Job.state.in_(LIVING_JOB), Subjob.batch_id.is_not(None)))
    return {row.id: row.user for row in found}
