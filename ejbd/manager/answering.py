"""Requests of users and operators, each a transaction, and answers to their questions."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.core.timeline import PlannedTimeline
from ejbd.manager.acts.carrying import run
from ejbd.manager.acts.numbers import settled
from ejbd.manager.facts import drains as known_drains
from ejbd.manager.facts.batchjob import numbers
from ejbd.manager.facts.drains import ToldDrain
from ejbd.manager.jobspec import Reading
from ejbd.manager.rules.looks import drains
from ejbd.manager.rules.queues import queuepause
from ejbd.manager.rules.requests import requests
from ejbd.manager.submission import queues
from ejbd.manager.submission.flows import Asked
from ejbd.manager.submission.intake import Accepted, Submission
from ejbd.manager.submission.told import ToldPlan, ToldQueue, ToldWindow
from ejbd.manager.telling import explaining
from ejbd.manager.telling.cluster import ToldCluster, told_cluster
from ejbd.manager.telling.told import ToldCourse, ToldExplanation, told_course
from ejbd.manager.watched import Watched
from ejbd.store import queries
from ejbd.store.models import Event


class Answering(Watched):
    """What REST asks of the manager."""

    def refuse_others(self, user: str) -> None:
        """Raise EjbError (FORBIDDEN) for a user that this daemon runs no jobs of."""
        self._submissions.refuse_others(user)

    async def submit(self, job: Reading, user: str, idempotency_key: str | None, request_hash: str) -> Accepted:
        """Store a job; durable when this returns. One that is passed through is shown to the batch system before."""
        self._submissions.refuse_others(user)
        return await self._submit(Submission(job, user, idempotency_key, request_hash))

    async def _submit(self, submission: Submission) -> Accepted:
        await self._see()
        return await self._submissions.submit(submission)

    async def check_workflow(self, plan: Asked) -> None:
        """Raise EjbError where a plan cannot be right, or this site would not take one of its allocations."""
        await self._see()
        await self.workflows.check(plan)

    async def submit_workflow(self, plan: Asked, user: str, key: str | None) -> tuple[str, bool]:
        """Store a workflow; its id, and whether it is new. Durable when this returns."""
        self._submissions.refuse_others(user)
        await self._see()
        return await self.workflows.submit(plan, user, key)

    async def cancel_workflow(self, id: str, by: str) -> None:
        await self.workflows.cancel(id, by)

    async def retry_workflow(self, id: str) -> None:
        await self.workflows.retry(id)

    async def plan(self, job: Reading, user: str) -> ToldPlan:
        """What submitting would do now (dry run)."""
        self._submissions.refuse_others(user)
        await self._see()
        return await self._submissions.plan(job, user)

    async def cancel(self, job_id: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.cancel, job_id, by))

    async def cancel_elements(self, job_id: str, elements: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.cancel_elements, job_id, elements, by))

    async def signal(self, job_id: str, signal: str, to: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.signal, job_id, signal, to, by))

    async def evolve(self, job_id: str, tail: str, dry_run: bool, by: str) -> ToldCourse:
        return await self.store.write(
            lambda s: told_course(run(self._context(s), requests.evolve, job_id, tail, dry_run, by))
        )

    async def resize(
        self, job_id: str, places: int | None, by: str, change: int | None = None, key: str = ""
    ) -> ToldCourse:
        return await self.store.write(
            lambda s: told_course(run(self._context(s), requests.resize, job_id, places, by, change, key))
        )

    async def number(self, job_id: str, wait_s: float) -> str:
        """The number that a job goes by from now on; that of its J0 is waited for, at most `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        while True:
            found, may_come, newest = await self.store.read(lambda s: self._number(s, job_id))
            left = deadline - time.monotonic()
            if found is not None:
                return found
            if not may_come or left <= 0:
                return await self.store.write(lambda s: settled(queries.job(s, job_id)))
            await self.wait_for_events(newest, left)

    def _number(self, session: Session, job_id: str) -> tuple[str | None, bool, int]:
        job = queries.job(session, job_id)
        newest = session.scalar(select(func.max(Event.id))) or 0
        return job.number, numbers.may_come(self._context(session), job), newest

    async def hold(self, job_id: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.hold, job_id, by))

    async def release(self, job_id: str, by: str) -> None:
        await self.store.write(lambda s: run(self._context(s), requests.unhold, job_id, by))

    async def explain(self, job_id: str) -> ToldExplanation:
        """Every decision about a job with its reasons, and what the policy says right now."""
        return await self.store.read(lambda s: explaining.explain(self._context(s), job_id, self.batch_error))

    async def planned(self, job_id: str) -> PlannedTimeline:
        """What is to come of a job by its plan, from now on."""
        return await self.store.read(lambda s: explaining.plan_of(self._context(s), job_id))

    async def windows(self, queue: str | None) -> list[ToldWindow]:
        """The slots that could be used now, for one queue or all."""
        return queues.windows_of(await self._view(), queue, self._memory.promises.snapshot())

    async def cluster(self, user: str, sees_all: bool, since_s: float) -> ToldCluster:
        """What runs and is planned, as this user may see it; with subjobs that ended after `since_s`."""
        view = await self._view()
        return await self.store.read(lambda s: told_cluster(s, view, user, sees_all, since_s))

    async def queues(self) -> list[ToldQueue]:
        """Every queue with its elasticity."""
        view = await self._view()
        return await self.store.read(lambda s: queues.queues(self._context(s), view))

    async def set_queue(self, name: str, changes: dict[str, Any], by: str) -> ToldQueue:
        await self.store.write(lambda s: queues.set_queue(self._context(s), name, changes, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def set_queue_window(self, name: str, when: str, changes: dict[str, Any], by: str) -> ToldQueue:
        """Have settings of a queue hold in a window of the week."""
        await self._view()
        await self.store.write(lambda s: run(self._context(s), queues.set_window, name, when, changes, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def clear_queue_windows(self, name: str, when: str | None, by: str) -> ToldQueue:
        """Take out a window of a queue, or all of them."""
        await self._view()
        await self.store.write(lambda s: run(self._context(s), queues.clear_windows, name, when, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def resume_queue(self, name: str, by: str) -> ToldQueue:
        """Try a paused queue again at once."""
        await self._view()
        await self.store.write(lambda s: run(self._context(s), queuepause.resume, name, by))
        return next(q for q in await self.queues() if q["name"] == name)

    async def drains(self) -> list[ToldDrain]:
        """What is drained for operators, the jobs that are still there, and when the nodes should be free."""
        view = await self._view()
        return await self.store.read(lambda s: known_drains.told(self._context(s), view))

    async def drain(self, nodes: str, by_s: float, by: str) -> list[ToldDrain]:
        """Have elastic jobs leave these nodes by a time; durable when this returns."""
        view = await self._view()
        await self.store.write(lambda s: run(self._context(s), drains.drain, view, nodes, by_s, by))
        await self._see_drains()
        return await self.drains()

    async def cancel_drain(self, nodes: str, by: str) -> list[ToldDrain]:
        """Use these nodes again."""
        await self.store.write(lambda s: run(self._context(s), drains.cancel, nodes, by))
        await self._see_drains()
        return await self.drains()

    async def _see_drains(self) -> None:
        """Windows are as of now, and not as of the next poll."""
        drained = await self.store.read(known_drains.reservations)
        if self.view is not None:
            self.view = replace(self.view, site_reservations=known_drains.with_drains(self.view, drained))
