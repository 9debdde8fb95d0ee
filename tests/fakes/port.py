"""A manager for tests of the API and the CLI: its jobs are rows of a real store, and nothing ever runs them."""

from __future__ import annotations

import asyncio
import functools
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.batch.process import CommandCount
from ejbd.config import QueueSettings, Settings
from ejbd.core.timeline import PlannedInterval, PlannedKind, PlannedTimeline
from ejbd.core.view import ClusterView
from ejbd.errors import Code, EjbError
from ejbd.manager.acts.numbers import settled
from ejbd.manager.facts.calendars import ToldQueueWindow
from ejbd.manager.facts.drains import ToldDrain
from ejbd.manager.facts.elasticity import ToldElastic
from ejbd.manager.facts.operations import ToldOperation
from ejbd.manager.facts.queues import ToldPause
from ejbd.manager.hands.hands import Hands
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import JobSpec, Reading
from ejbd.manager.listening.calls import ToldRegistration
from ejbd.manager.service.health import ToldHealth
from ejbd.manager.service.telemetry import Telemetry
from ejbd.manager.submission.flows import Asked
from ejbd.manager.submission.intake import Accepted, new_id
from ejbd.manager.submission.told import ToldPlan, ToldQueue, ToldSlot, ToldWindow
from ejbd.manager.telling.cluster import ToldCluster, told_cluster
from ejbd.manager.telling.told import ToldCourse, ToldDecision, ToldExplanation
from ejbd.store import queries
from ejbd.store.models import Event, IdempotencyKey, Job, Subjob, Workflow, WorkflowStage
from ejbd.store.states import JobState, StageState, WorkflowState
from ejbd.store.store import Store
from ejbd.store.transitions import add_event, move_job
from ejbd.wire.kinds import EventKind
from ejbd.workflow.graph import groups
from ejbd.workflow.plan import Plan
from ejbd.workflow.reading import read_plan

DECISION = {
    "kind": "start",
    "job": "dry-run",
    "now_s": 100.0,
    "reason": "start by case 2: 4 processors (degree 4) take 2400 s",
    "requests": [{"processors": 4, "length_s": 2400.0, "slot_index": 0}],
    "expected_completion_s": 2500.0,
    "candidates": [
        {"name": "case 2", "feasible": True, "completion_s": 2500.0, "requests": [], "why": "4 processors are free"},
        {"name": "wait", "feasible": False, "completion_s": None, "requests": [], "why": "J0 starts later"},
    ],
    "slots": [{"processors": 4, "duration_s": None}],
    "cancel": [],
    "timeline": [
        {
            "kind": "run",
            "start_s": 100.0,
            "end_s": 2500.0,
            "processors": 4,
            "degree": 4,
            "on_placeholder": False,
        }
    ],
}
WORKER_SUBJOB, WORKER_SECRET = "abc.1", "worker-secret"


def workflow_row(id: str, plan: Plan, user: str, asked: Asked, key: str | None) -> Workflow:
    return Workflow(
        id=id,
        name=plan.name,
        user=user,
        state=WorkflowState.RUNNING,
        plan=plan.to_json(),
        surroundings=dict(asked.surroundings),
        key=key,
        request_hash=asked.digest,
        submit_s=time.time(),
    )


class FakeManager:
    """Keeps what it is told. `elasticity` is that of its one queue `main`; `fault` is raised by every request."""

    def __init__(self, settings: Settings, store: Store, elasticity: str = "on") -> None:
        self.settings = settings
        self.drained: ToldDrain | None = None
        self.elastic_calls: list[dict[str, Any]] = []
        self.view: ClusterView | None = None
        self.store = store
        self.telemetry = Telemetry({"squeue": CommandCount(calls=3, failures=1, seconds=0.5)})
        self.elasticity = elasticity
        self.paused: list[ToldPause] = []
        self.numbers_read: list[str] = []
        self.overrides: dict[str, Any] = {}
        self.calendar: dict[str, ToldQueueWindow] = {}
        self.reports: list[dict[str, Any]] = []
        self.operations: list[ToldOperation] = []
        self.registered: list[dict[str, Any]] = []
        self.fault: Exception | None = None
        self.runs_as: str | None = None  # None: everybody's jobs
        self.ok = True
        self._events = asyncio.Condition()

    def read_output(self, user: str, path: str, most: int, offset: int) -> bytes:
        return Hands(Spool(Path("/nowhere"))).output(user, path, most, offset)

    def refuse_if_closed(self) -> None:
        """It has begun."""

    def refuse_others(self, user: str) -> None:
        if self.runs_as is not None and user != self.runs_as:
            raise EjbError(Code.FORBIDDEN, f"this daemon runs jobs as {self.runs_as!r} and you are {user!r}")

    async def submit(self, job: Reading, user: str, idempotency_key: str | None, request_hash: str) -> Accepted:
        key = idempotency_key
        spec, elastic, why = self._admit(job)
        id = new_id()

        def add(session: Session) -> tuple[str, bool]:
            known = session.get(IdempotencyKey, (user, key)) if key is not None else None
            if known is not None:
                if known.request_hash != request_hash:
                    raise EjbError(Code.KEY_REUSED, "this Idempotency-Key was used with another request")
                return known.job_id, False
            session.add(job_row(id, spec, user))
            if key is not None:
                session.add(
                    IdempotencyKey(user=user, key=key, request_hash=request_hash, job_id=id, created_s=time.time())
                )
            add_event(session, EventKind.JOB_RECEIVED, time.time(), job_id=id, queue="main")
            return id, True

        answer = await self.store.write(add)
        await self.announce()
        return Accepted(*answer, elastic, why, job.notes if elastic else ())

    async def check_workflow(self, plan: Asked, user: str) -> None:
        read_plan(plan.text, plan.file)

    async def submit_workflow(self, plan: Asked, user: str, key: str | None) -> tuple[str, bool]:
        found = read_plan(plan.text, plan.file)
        id = new_id()

        def add(session: Session) -> tuple[str, bool]:
            known = session.scalar(select(Workflow).where(Workflow.user == user, Workflow.key == key))
            if key is not None and known is not None:
                return known.id, False
            session.add(workflow_row(id, found, user, plan, key))
            session.flush()
            for at, group in enumerate(groups(found)):
                session.add(WorkflowStage(workflow_id=id, name=group.name, ordinal=at, state=StageState.WAITING))
            return id, True

        return await self.store.write(add)

    async def cancel_workflow(self, id: str, by: str) -> None:
        raise EjbError(Code.CONFLICT, f"workflow {id} cannot be cancelled")

    async def retry_workflow(self, id: str) -> None:
        raise EjbError(Code.CONFLICT, f"workflow {id} is running; only one that has failed can be tried again")

    async def signal(self, job_id: str, signal: str, to: str, by: str) -> None:
        raise EjbError(Code.CONFLICT, f"nothing of job {job_id} runs that a signal could be sent to")

    async def evolve(self, job_id: str, tail: str, dry_run: bool, by: str) -> ToldCourse:
        raise EjbError(Code.UNSUPPORTED, f"job {job_id} has no profile of widths that could be replaced")

    async def resize(
        self, job_id: str, places: int | None, by: str, change: int | None = None, key: str = ""
    ) -> ToldCourse:
        raise EjbError(Code.UNSUPPORTED, f"job {job_id} has no profile of widths that could be replaced")

    async def number_read(self, job_id: str) -> None:
        self.numbers_read.append(job_id)

    async def number(self, job_id: str, wait_s: float) -> str:
        return await self.store.write(lambda s: settled(queries.job(s, job_id)))

    async def plan(self, job: Reading, user: str) -> ToldPlan:
        spec, elastic, why = self._admit(job)
        return {
            "queue": "main",
            "elastic": elastic,
            "why": why,
            "code": None,
            "engine": spec.engine,
            "application": None,
            "slots": [{"processors": 4, "duration_s": None, "why": ""}],
            "free_ahead": [],
            "decision": DECISION if elastic else None,
            "cost": None,
            "penalty": None,
            "deltas": [],
            "overheads": None,
            "walltimes": None,
            "placeholder": {"processors": spec.processes, "walltime_s": spec.walltime_s},
            "notes": list(job.notes) if elastic else [],
        }

    def _admit(self, job: Reading) -> tuple[JobSpec, bool, str]:
        """As :func:`ejbd.manager.submission.admission.admit` does, with a queue that has no limits."""
        spec, why = job.spec, f"elasticity is {self.elasticity} in queue main"
        self._check(spec)
        elastic = spec.elastic if spec.elastic is not None else self.elasticity != "off"
        if spec.elastic is None and elastic and job.refusals:
            elastic, why = False, f"{job.refusals[0].where}: {job.refusals[0].message}"
        return job.elastic_spec() if elastic else job.passed_through(why), elastic, why

    def _check(self, spec: JobSpec) -> None:
        if self.fault is not None:
            raise self.fault
        if spec.queue not in (None, "main"):
            raise EjbError(Code.INVALID, f"there is no queue {spec.queue!r}", hint="the queues are: main")
        if spec.processes > 1024:
            raise EjbError(Code.INVALID, f"{spec.processes} processors are more than queue main has (1024)")

    async def cancel(self, job_id: str, by: str) -> None:
        await self.end(job_id, JobState.CANCELLED, reason=f"cancelled by {by}")

    async def cancel_elements(self, job_id: str, elements: str, by: str) -> None:
        raise EjbError(Code.NOT_FOUND, f"job {job_id} is no elastic array")

    async def end(self, job_id: str, state: JobState, exit_code: int | None = None, reason: str = "") -> None:
        def change(session: Session) -> None:
            job = _live(session, job_id)
            if job.state == JobState.RECEIVED and state is not JobState.CANCELLED:
                move_job(session, job, JobState.WAITING, time.time())
            job.exit_code = exit_code
            if state is JobState.ENDING:  # as the manager does: it is over, and its output is collected
                job.end_s = time.time()
            move_job(session, job, state, time.time(), reason=reason)

        await self.store.write(change)
        await self.announce()

    async def hold(self, job_id: str, by: str) -> None:
        await self.store.write(lambda session: setattr(_live(session, job_id), "held", True))

    async def release(self, job_id: str, by: str) -> None:
        def change(session: Session) -> None:
            job = _live(session, job_id)
            if not job.held:
                raise EjbError(Code.CONFLICT, f"job {job_id} is not held")
            job.held = False

        await self.store.write(change)

    async def explain(self, job_id: str) -> ToldExplanation:
        delta = {"delta": 1.25, "source": "measured", "why": "measured once at degree 4", "samples": 1}
        past: ToldDecision = {
            "at_s": 100.0,
            "kind": "start",
            "decision": DECISION,
            "cost": None,
            "penalty": delta,
            "overheads": None,
        }
        return {
            "state": "received",
            "now": "waiting: nothing is free",
            "application": None,
            "decisions": [past],
            "present": None,
            "planned": [],
            "notes": [],
            "cost": None,
            "penalty": delta,
            "deltas": [],
            "overheads": None,
            "checkpoints": None,
            "movable": None,
            "moves": [],
            "speeds": [],
            "runs": [],
            "walltimes": None,
        }

    async def planned(self, job_id: str) -> PlannedTimeline:
        """Waits, then runs for 10 minutes on J0."""
        now = time.time()
        return (
            PlannedInterval(PlannedKind.WAIT, now, now + 60, 0, 0),
            PlannedInterval(PlannedKind.RUN, now + 60, now + 660, 16, 1, True),
        )

    async def windows(self, queue: str | None) -> list[ToldWindow]:
        if queue not in (None, "main"):
            raise EjbError(Code.NOT_FOUND, f"there is no queue {queue!r}")
        slots: list[ToldSlot] = [
            {"processors": 4, "duration_s": 600.0, "why": ""},
            {"processors": 2, "duration_s": None, "why": ""},
        ]
        return [
            {
                "queue": "main",
                "at_s": 100.0 if self.view is None else self.view.time_s,
                "slots": slots,
                "closed": [],
                "free": 4,
                "total": 1024,
                "by": "",
                "blind": "",
                "kept_for": None,
            }
        ]

    async def cluster(self, user: str, sees_all: bool, since_s: float) -> ToldCluster:
        if self.view is None:
            raise EjbError(Code.BATCH_UNAVAILABLE, "the batch system does not answer", transient=True)
        view = self.view
        return await self.store.read(lambda session: told_cluster(session, view, user, sees_all, since_s))

    async def queues(self) -> list[ToldQueue]:
        settings = {**QueueSettings().model_dump(mode="json"), "elasticity": self.elasticity, **self.overrides}
        return [
            {
                "name": "main",
                "up": True,
                "settings": settings,
                "overridden": sorted(self.overrides),
                "waiting": 0,
                "running": 0,
                "elastic_now": settings["elasticity"] != "off",
                "paused": self.paused,
                "calendar": {"time_zone": "UTC", "windows": list(self.calendar.values()), "until_s": None},
            }
        ]

    async def set_queue_window(self, name: str, when: str, changes: dict[str, Any], by: str) -> ToldQueue:
        if name != "main":
            raise EjbError(Code.NOT_FOUND, f"there is no queue {name!r}")
        row: ToldQueueWindow = {
            "when": when,
            "settings": changes,
            "in_force": True,
            "changed_s": 0.0,
            "changed_by": by,
        }
        self.calendar[when] = row
        return (await self.queues())[0]

    async def clear_queue_windows(self, name: str, when: str | None, by: str) -> ToldQueue:
        gone = [one for one in self.calendar if when in (None, one)]
        if name != "main" or not gone:
            raise EjbError(Code.NOT_FOUND, f"queue {name} has no windows")
        for one in gone:
            del self.calendar[one]
        return (await self.queues())[0]

    async def resume_queue(self, name: str, by: str) -> ToldQueue:
        if not self.paused:
            raise EjbError(Code.CONFLICT, f"queue {name} is not paused")
        self.paused = []
        return (await self.queues())[0]

    async def set_queue(self, name: str, changes: dict[str, Any], by: str) -> ToldQueue:
        if name != "main":
            raise EjbError(Code.NOT_FOUND, f"there is no queue {name!r}")
        self.overrides.update(changes)
        self.overrides = {key: value for key, value in self.overrides.items() if value is not None}
        return (await self.queues())[0]

    async def drains(self) -> list[ToldDrain]:
        return [] if self.drained is None else [self.drained]

    async def drain(self, nodes: str, by_s: float, by: str) -> list[ToldDrain]:
        self.drained = {
            "nodes": nodes,
            "by_s": by_s,
            "asked_s": 1.0,
            "asked_by": by,
            "elastic": ["j1"],
            "stay": [],
            "others": ["7"],
            "elastic_free_s": by_s,
            "free_s": None,
        }
        return await self.drains()

    async def cancel_drain(self, nodes: str, by: str) -> list[ToldDrain]:
        if self.drained is None:
            raise EjbError(Code.NOT_FOUND, f"none of {nodes} is drained by EJB")
        self.drained = None
        return []

    async def subjob_secret(self, subjob: str) -> str | None:
        return WORKER_SECRET if subjob == WORKER_SUBJOB else None

    async def register_worker(self, subjob: str, request: dict[str, Any]) -> ToldRegistration:
        assert subjob == WORKER_SUBJOB
        self.registered.append(request)
        return {"worker": "w1", "heartbeat_s": 5, "poll_s": 20}

    async def worker_operations(self, subjob: str, worker: str, after: int, wait_s: float) -> list[ToldOperation]:
        assert subjob == WORKER_SUBJOB
        if not self.operations:
            await asyncio.sleep(wait_s)
        return [operation for operation in self.operations if operation["seq"] > after]

    async def elastic_call(self, subjob: str, call: dict[str, Any]) -> ToldElastic:
        self.elastic_calls.append({"subjob": subjob, **call})
        places = call["to"] or 4
        return ToldElastic(job="j1", held=places, asked=places, base=4, most=16, settled=True, end_s=9e8, nodes=["n1"])

    async def worker_reports(self, subjob: str, worker: str, reports: list[dict[str, Any]]) -> int:
        assert subjob == WORKER_SUBJOB
        self.reports += reports
        return max((report["n"] for report in self.reports), default=0)

    async def between_polls(self, most_s: float) -> None:
        """No poll is ever under way."""

    async def wait_for_events(self, after_id: int, timeout_s: float) -> None:
        async def newer() -> bool:
            return (await self.store.read(lambda session: session.scalar(select(func.max(Event.id)))) or 0) > after_id

        async with self._events:
            if not await newer():
                try:
                    await asyncio.wait_for(self._events.wait(), timeout_s)
                except TimeoutError:
                    pass

    async def announce(self) -> None:
        async with self._events:
            self._events.notify_all()

    def health(self) -> ToldHealth:
        return {
            "ok": self.ok,
            "faults": [],
            "batch": "fake",
            "batch_error": "",
            "last_poll_s": None,
            "polls": 0,
            "failed_polls": 0,
            "unparsed_rows": 0,
            "blind": "",
            "started_s": 1.0,
        }


@functools.cache
def _empty_database() -> bytes:
    """Making the tables takes longer than most tests: it is done once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "template.sqlite"
        store = Store(f"sqlite:///{file}")
        store.upgrade()
        store.close()
        return file.read_bytes()


def new_store(file: Path) -> Store:
    """A store with its tables in a new SQLite file."""
    file.touch(0o600)
    file.write_bytes(_empty_database())
    return Store(f"sqlite:///{file}")


def job_row(id: str, spec: JobSpec, user: str) -> Job:
    """A job as it is stored when it arrives."""
    return Job(
        id=id,
        name=spec.name,
        user=user,
        queue="main",
        state=JobState.RECEIVED,
        elastic=spec.elastic is not False,
        kind=spec.kind.value,
        engine=spec.engine,
        processes=spec.processes,
        walltime_s=spec.walltime_s,
        spec=spec.to_json(),
        held=spec.hold,
        submit_s=time.time(),
    )


def subjob_row(job_id: str, ordinal: int, **values: Any) -> Subjob:
    """A subjob that runs."""
    given: dict[str, Any] = {
        "id": f"{job_id}.{ordinal}",
        "role": "subjob" if ordinal else "placeholder",
        "tag": f"ejb-{job_id}-{ordinal}",
        "state": "running",
        "processors": 4,
        "walltime_s": 600.0,
        "usable_s": 540.0,
        "created_s": time.time(),
        "nodes": ["n1"],
        "batch_id": str(ordinal),
        "start_s": time.time(),
    }
    return Subjob(job_id=job_id, ordinal=ordinal, **(given | values))


def _live(session: Session, job_id: str) -> Job:
    job = session.scalars(select(Job).where(Job.id == job_id)).one()
    if JobState(job.state).terminal:
        raise EjbError(Code.CONFLICT, f"job {job_id} is {job.state}")
    return job
