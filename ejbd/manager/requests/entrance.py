"""Jobs and workflows on their way in: for a user that this daemon runs jobs of, once a poll has looked."""

from __future__ import annotations

from ejbd.manager.jobspec import Reading
from ejbd.manager.poll.poller import Poller
from ejbd.manager.submission.flows import Asked, Workflows
from ejbd.manager.submission.intake import Accepted, Submission
from ejbd.manager.submission.submitting import Submissions
from ejbd.manager.submission.told import ToldPlan
from ejbd.manager.world import World


class Entrance:
    """`workflows`: those of the daemon; their jobs come in here, too."""

    def __init__(self, world: World, poller: Poller) -> None:
        self._poller = poller
        self.submissions = Submissions(
            world.settings, world.store, world.batch, world.one_user, world.context, lambda: world.view,
            world.hands.read_file if world.hands.by_user else None,
        )  # fmt: skip
        self.workflows = Workflows(world.store, world.context, self._take, world.hands)

    def refuse_others(self, user: str) -> None:
        """Raise EjbError (FORBIDDEN) for a user that this daemon runs no jobs of."""
        self.submissions.refuse_others(user)

    async def submit(self, job: Reading, user: str, idempotency_key: str | None, request_hash: str) -> Accepted:
        """Store a job; durable when this returns. One that is passed through is shown to the batch system before."""
        self.refuse_others(user)
        return await self._take(Submission(job, user, idempotency_key, request_hash))

    async def _take(self, submission: Submission) -> Accepted:
        await self._poller.see()
        return await self.submissions.submit(submission)

    async def plan(self, job: Reading, user: str) -> ToldPlan:
        """What submitting would do now (dry run)."""
        self.refuse_others(user)
        await self._poller.see()
        return await self.submissions.plan(job, user)

    async def check_workflow(self, plan: Asked, user: str) -> None:
        """Raise EjbError where a user's plan cannot be right, or this site would not take one of its allocations."""
        await self._poller.see()
        await self.workflows.check(plan, user)

    async def submit_workflow(self, plan: Asked, user: str, key: str | None) -> tuple[str, bool]:
        """Store a workflow; its id, and whether it is new. Durable when this returns."""
        self.refuse_others(user)
        await self._poller.see()
        return await self.workflows.submit(plan, user, key)
