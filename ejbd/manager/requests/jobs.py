"""What a user asks about a job that is there, or wants of it."""

from __future__ import annotations

import time

from sqlalchemy.orm import Session

from ejbd.batch.base import Identity, SendsSignals
from ejbd.core.timeline import PlannedTimeline
from ejbd.manager.acts.carrying import run
from ejbd.manager.acts.numbers import number_read, told_number
from ejbd.manager.facts.batchjob import numbers
from ejbd.manager.facts.tags import still_theirs
from ejbd.manager.poll.poller import Poller
from ejbd.manager.rules.requests import requests
from ejbd.manager.service.news import News, newest_event
from ejbd.manager.telling import explaining
from ejbd.manager.telling.told import ToldCourse, ToldExplanation, told_course
from ejbd.manager.world import World
from ejbd.store import queries


class JobRequests:
    """Each is one transaction; durable when it returns. Raises EjbError where it cannot be done."""

    def __init__(self, world: World, poller: Poller, news: News) -> None:
        self._store = world.store
        self._context = world.context
        self._batch = world.batch
        self._poller = poller
        self._news = news

    async def cancel(self, job_id: str, by: str) -> None:
        await self._store.write(lambda s: run(self._context(s), requests.cancel, job_id, by))

    async def cancel_elements(self, job_id: str, elements: str, by: str) -> None:
        await self._store.write(lambda s: run(self._context(s), requests.cancel_elements, job_id, elements, by))

    async def signal(self, job_id: str, signal: str, to: str, by: str) -> None:
        number, marks = await self._store.write(
            lambda s: run(self._context(s), requests.signal, job_id, signal, to, by)
        )
        if marks and isinstance(self._batch, SendsSignals):
            own, known = Identity.own(), {id: (mark,) for id, mark in marks.items()}
            for id in still_theirs({id: id for id in marks}, known, await self._batch.list_jobs(list(marks)), own.user):
                await self._batch.signal(own, id, number, to)

    async def evolve(self, job_id: str, tail: str, dry_run: bool, by: str) -> ToldCourse:
        return await self._store.write(
            lambda s: told_course(run(self._context(s), requests.evolve, job_id, tail, dry_run, by))
        )

    async def resize(
        self, job_id: str, places: int | None, by: str, change: int | None = None, key: str = ""
    ) -> ToldCourse:
        return await self._store.write(
            lambda s: told_course(run(self._context(s), requests.resize, job_id, places, by, change, key))
        )

    async def hold(self, job_id: str, by: str) -> None:
        await self._store.write(lambda s: run(self._context(s), requests.hold, job_id, by))

    async def release(self, job_id: str, by: str) -> None:
        await self._store.write(lambda s: run(self._context(s), requests.unhold, job_id, by))

    async def number(self, job_id: str, wait_s: float) -> str:
        """The number that a job goes by from now on; that of its J0 is waited for, at most `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        while True:
            found, may_come, newest = await self._store.read(lambda s: self._number(s, job_id))
            left = deadline - time.monotonic()
            if found is not None:
                return found
            if not may_come or left <= 0:
                return await self._store.write(lambda s: told_number(queries.job(s, job_id)))
            await self._news.wait_for_events(newest, left)

    async def number_read(self, job_id: str) -> None:
        """The number was printed, or whatever its user does with it: the job may begin."""
        await self._store.write(lambda s: number_read(self._context(s), job_id))

    def _number(self, session: Session, job_id: str) -> tuple[str | None, bool, int]:
        job = queries.job(session, job_id)
        return job.number, numbers.may_come(self._context(session), job), newest_event(session)

    async def explain(self, job_id: str) -> ToldExplanation:
        """Every decision about a job with its reasons, and what the policy says right now."""
        return await self._store.read(lambda s: explaining.explain(self._context(s), job_id, self._poller.error))

    async def planned(self, job_id: str) -> PlannedTimeline:
        """What is to come of a job by its plan, from now on."""
        return await self._store.read(lambda s: explaining.plan_of(self._context(s), job_id))
