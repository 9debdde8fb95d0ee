"""The manager as the API sees it."""

from __future__ import annotations

from typing import Any, Protocol

from ejbd.config import Settings
from ejbd.manager.facts.drains import ToldDrain
from ejbd.manager.facts.elasticity import ToldElastic
from ejbd.manager.facts.operations import ToldOperation
from ejbd.manager.facts.room.outlook import PlannedTimeline
from ejbd.manager.jobspec import Reading
from ejbd.manager.listening.calls import ToldRegistration
from ejbd.manager.service.health import ToldHealth
from ejbd.manager.service.telemetry import Telemetry
from ejbd.manager.submission.flows import Asked
from ejbd.manager.submission.intake import Accepted
from ejbd.manager.submission.told import ToldPlan, ToldQueue, ToldWindow
from ejbd.manager.telling.cluster import ToldCluster
from ejbd.manager.telling.told import ToldCourse, ToldExplanation
from ejbd.store.store import Store


class ManagerPort(Protocol):
    """What the API asks of the manager. Every call may raise :class:`ejbd.errors.EjbError`; times are epoch seconds."""

    settings: Settings
    store: Store
    telemetry: Telemetry

    def read_output(self, user: str, path: str, most: int, offset: int) -> bytes:
        """Part of a job's output, which must be its user's. Blocks; raises OSError."""
        ...

    def refuse_if_closed(self) -> None:
        """Raise EjbError where the daemon has not begun: its spool is away, or another daemon's."""
        ...

    def refuse_others(self, user: str) -> None:
        """FORBIDDEN for a user that this daemon does not run jobs for."""
        ...

    async def submit(self, job: Reading, user: str, idempotency_key: str | None, request_hash: str) -> Accepted:
        """The job's id, how it is taken and why, and whether it is new (else this key and body were answered before).

        The job is durable when this returns. KEY_REUSED: the key was used with another body. BATCH_REFUSED: it would
        be passed through, and the batch system says that it would not take it.
        """
        ...

    async def plan(self, job: Reading, user: str) -> ToldPlan:
        """What would be done with such a job now; nothing is kept. BATCH_REFUSED as for :meth:`submit`."""
        ...

    async def check_workflow(self, plan: Asked, user: str) -> None:
        """Raise EjbError where a plan cannot be right, or this site would not take one of its allocations."""
        ...

    async def submit_workflow(self, plan: Asked, user: str, key: str | None) -> tuple[str, bool]:
        """The workflow's id, and whether it is new. It is durable when this returns. KEY_REUSED as for a job."""
        ...

    async def cancel_workflow(self, id: str, by: str) -> None:
        """End a workflow. CONFLICT where it has ended."""
        ...

    async def retry_workflow(self, id: str) -> None:
        """Try again what did not end well. CONFLICT where nothing failed."""
        ...

    async def cancel(self, job_id: str, by: str) -> None:
        """End a job. CONFLICT where it has ended."""
        ...

    async def cancel_elements(self, job_id: str, elements: str, by: str) -> None:
        """End these elements of an array (as --array has them). CONFLICT where none of them is left.

        NOT_FOUND where the job is no elastic array.
        """
        ...

    async def signal(self, job_id: str, signal: str, to: str, by: str) -> None:
        """Send a signal to an elastic job's `ranks`, its `script` or `all`. CONFLICT where nothing of that runs."""
        ...

    async def evolve(self, job_id: str, tail: str, dry_run: bool, by: str) -> ToldCourse:
        """Replace what comes of an evolving job (`now:64,+30m:128`), and say when it has each width.

        CONFLICT where it does not run, UNSUPPORTED where it does not evolve, INVALID for what is no tail of it.
        """
        ...

    async def resize(
        self, job_id: str, places: int | None, by: str, change: int | None = None, key: str = ""
    ) -> ToldCourse:
        """Give an evolving job so many places from now to its end (None: what it holds throughout); as `evolve`.

        `change`: so many more than now, or less. `key`: a request with one that was seen before is that one.
        """
        ...

    async def number(self, job_id: str, wait_s: float) -> str:
        """The number that a job goes by from now on; that of its J0 is waited for, at most `wait_s` seconds."""
        ...

    async def number_read(self, job_id: str) -> None:
        """A job's submitter has read its number: it may begin."""
        ...

    async def hold(self, job_id: str, by: str) -> None:
        """Keep a job that has not started from starting. CONFLICT where it has."""
        ...

    async def release(self, job_id: str, by: str) -> None:
        """Let a held job go on. CONFLICT where it is not held."""
        ...

    async def explain(self, job_id: str) -> ToldExplanation:
        """Why a job is where it is: every decision about it, and what the policy says now."""
        ...

    async def planned(self, job_id: str) -> PlannedTimeline:
        """What is to come of a job by its plan, from now on; empty where nothing is planned."""
        ...

    async def windows(self, queue: str | None) -> list[ToldWindow]:
        """The slots that could be used now, for one queue or all. NOT_FOUND where there is no such queue."""
        ...

    async def cluster(self, user: str, sees_all: bool, since_s: float) -> ToldCluster:
        """What runs and is planned, as this user may see it; with subjobs that ended after `since_s`."""
        ...

    async def queues(self) -> list[ToldQueue]:
        """Every queue with its elasticity."""
        ...

    async def set_queue(self, name: str, changes: dict[str, Any], by: str) -> ToldQueue:
        """Change settings of a queue at run time (None: back to the configuration's); one entry of :meth:`queues`."""
        ...

    async def set_queue_window(self, name: str, when: str, changes: dict[str, Any], by: str) -> ToldQueue:
        """Change settings of a queue in a window of the week (None: out of it); one entry of :meth:`queues`."""
        ...

    async def clear_queue_windows(self, name: str, when: str | None, by: str) -> ToldQueue:
        """Take out a window of a queue, or all (None); one entry of :meth:`queues`."""
        ...

    async def resume_queue(self, name: str, by: str) -> ToldQueue:
        """Try a paused queue again at once; one entry of :meth:`queues`."""
        ...

    async def drains(self) -> list[ToldDrain]:
        """What is drained for operators, which jobs are still there, and when the nodes should be free."""
        ...

    async def drain(self, nodes: str, by_s: float, by: str) -> list[ToldDrain]:
        """Have elastic jobs leave these nodes by `by_s`; as :meth:`drains`."""
        ...

    async def cancel_drain(self, nodes: str, by: str) -> list[ToldDrain]:
        """Use these nodes again; as :meth:`drains`."""
        ...

    async def subjob_secret(self, subjob: str) -> str | None:
        """What the workers of a subjob prove to know; None where there is no such subjob."""
        ...

    async def register_worker(self, subjob: str, request: dict[str, Any]) -> ToldRegistration:
        """A worker is there: its id, and how often it should call."""
        ...

    async def worker_operations(self, subjob: str, worker: str, after: int, wait_s: float) -> list[ToldOperation]:
        """The worker's operations beyond `after`, waiting up to `wait_s` seconds for one."""
        ...

    async def elastic_call(self, subjob: str, call: dict[str, Any]) -> ToldElastic:
        """What a process of a subjob asks of its own job; what the job has by then, and by its course."""
        ...

    async def worker_reports(self, subjob: str, worker: str, reports: list[dict[str, Any]]) -> int:
        """Store reports; the highest `n` stored."""
        ...

    async def wait_for_events(self, after_id: int, timeout_s: float) -> None:
        """Return when there is an event beyond `after_id`, or after `timeout_s` seconds."""
        ...

    async def between_polls(self, most_s: float) -> None:
        """Return while no poll is under way; after `most_s` seconds in any case."""
        ...

    def health(self) -> ToldHealth:
        """Whether the daemon does its work, and what keeps it from it."""
        ...
