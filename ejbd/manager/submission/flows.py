"""Workflows on their way: taken, gone on with, and each allocation made a job as a user's submission is.

Outside of transactions: what files say is looked at, and jobs are made, under a key that is the same however often that
is tried. Rules decide in between (ejbd.manager.rules.flows).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import apart
from ejbd.manager.acts.carrying import run
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.flows import files
from ejbd.manager.facts.flows.following import may_follow, outdated
from ejbd.manager.facts.flows.standing import RETRY_S, Standing, is_leaving, key_of, open_ids, run_of, standing
from ejbd.manager.hands.hands import Hands
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.manager.rules.flows import asked, steps
from ejbd.manager.submission.admission import admit
from ejbd.manager.submission.intake import Accepted, Submission, new_id
from ejbd.store.models import Workflow
from ejbd.store.states import StageState
from ejbd.store.store import Store
from ejbd.wire.kinds import ENGINES
from ejbd.workflow.graph import Group, groups
from ejbd.workflow.plan import Plan, Stage
from ejbd.workflow.reading import read_plan
from ejbd.workflow.script import go_file, script_of

log = structlog.get_logger(__name__)

MADE_AT_ONCE = 16
"""Jobs that are made of one workflow before the next one has its turn."""
MOST_ROUNDS = 20  # a look that goes on this often leaves the rest to the next
TURN_S = 1.0  # that the workflows of other users wait for one user's
LOOK_S = 60.0  # for the files of one step
AWAY_S = 60.0  # after which a user's files that did not come are looked at again
CLOCK_S = 5.0  # between two looks at workflows that wait for a time


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan as its user hands it in; `surroundings`: cwd, env, umask, limits and profiles of its submission."""

    text: str
    file: str
    surroundings: Mapping[str, Any]

    @property
    def digest(self) -> str:
        told = json.dumps([self.text, dict(self.surroundings)], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()


class Workflows:
    """The workflows of a daemon. `submit` makes a job of a submission."""

    def __init__(
        self,
        store: Store,
        context: Callable[[Session], Context],
        submit: Callable[[Submission], Awaitable[Accepted]],
        hands: Hands,
    ) -> None:
        self._store = store
        self._context = context
        self._submit = submit
        self._hands = hands
        self._turn = asyncio.Lock()
        self._of_users: dict[str, asyncio.Task[None]] = {}  # that go on with one user's workflows
        self._away_s: dict[str, float] = {}  # users with files that do not come: not looked at before (monotonic)
        self.waiting = False  # some had their turn, and have further jobs to be made
        self._retry_s: dict[tuple[str, str], float] = {}  # allocation -> not before, after a refusal that passes

    # -- requests -----------------------------------------------------------------------------------------------------

    async def check(self, given: Asked, user: str = "") -> Plan:
        """The plan, each allocation of which this site would take of the user. Raises EjbError with its place in it."""
        plan = await asyncio.to_thread(read_plan, given.text, given.file, ENGINES)
        readings = []
        for group in groups(plan):
            try:
                readings.append((group, read(request_of("check", group.stages, 1, given.surroundings))))
            except EjbError as error:
                raise _placed(error, given.file, group) from None

        def look(session: Session) -> None:
            ctx = self._context(session)
            for group, reading in readings:
                try:
                    admit(ctx, reading, user)  # whether it can be taken at all
                except EjbError as error:
                    raise _placed(error, given.file, group) from None

        await self._store.read(look)
        return plan

    async def submit(self, given: Asked, user: str, key: str | None) -> tuple[str, bool]:
        """Store a plan, and whether it is new; durable when this returns. Raises EjbError (also KEY_REUSED)."""
        if key is not None and (before := await self._store.read(lambda s: _answered(s, user, key, given.digest))):
            return before, False
        plan = await self.check(given, user)
        id = new_id()

        def write(session: Session) -> tuple[str, bool]:
            if key is not None and (before := _answered(session, user, key, given.digest)):
                return before, False
            ctx = self._context(session)
            run(ctx, asked.receive, id, plan, user, given.surroundings, key, given.digest)
            return id, True

        answer = await self._store.write(write)
        reach(CrashPoint.WORKFLOW_AFTER_COMMIT)
        return answer

    async def cancel(self, id: str, by: str) -> None:
        await self._store.write(lambda s: run(self._context(s), asked.cancel, id, by))

    async def retry(self, id: str) -> None:
        await self._store.write(lambda s: run(self._context(s), asked.retry, id))

    # -- going on -----------------------------------------------------------------------------------------------------

    async def advance(self) -> bool:
        """Go on with every workflow as far as it goes now; whether any is open.

        Those of one user go one after the other. Others wait `TURN_S` for a user's files at most.
        """
        async with self._turn:
            self.waiting = False
            of_users: dict[str, list[str]] = {}
            for id, user in await self._store.read(open_ids):
                of_users.setdefault(user, []).append(id)
            for user, ids in of_users.items():
                if user not in self._of_users and self._away_s.get(user, 0.0) <= time.monotonic():
                    self._of_users[user] = asyncio.create_task(self._advance_all(user, ids), name=f"flows-of-{user}")
            if self._of_users:
                await asyncio.wait(self._of_users.values(), timeout=TURN_S)
            ended = [task for task in self._of_users.values() if task.done()]
            self._of_users = {user: task for user, task in self._of_users.items() if not task.done()}
            for task in ended:
                task.result()  # a fault is the caller's to tell
            return bool(of_users)

    def close(self) -> None:
        """End what still goes on."""
        for task in self._of_users.values():
            task.cancel()

    async def _advance_all(self, user: str, ids: Sequence[str]) -> None:
        for id in ids:
            try:
                await self._advance(id)
                self._away_s.pop(user, None)
            except EjbError as error:
                log.error("workflow", id=id, error=error.sentence())
            except (OSError, TimeoutError) as error:
                self._away_s[user] = time.monotonic() + AWAY_S
                log.warning("workflow-files", id=id, user=user, error=str(error) or "the file system does not answer")
                return

    async def _advance(self, id: str) -> None:
        for _ in range(MOST_ROUNDS):
            todo = await self._store.read(lambda s: self._todo(s, id))
            for order in todo.submitting:
                await self._make(order)
            if todo.waiting:
                self.waiting = True
                return
            if todo.go:
                await apart(partial(self._say_go, todo.question, todo.go), user=todo.question.user)
            if not todo.more:
                return
            await self._step(id, todo.question)

    async def _step(self, id: str, question: files.Question) -> None:
        looked = await apart(lambda: files.look(question, self._hands), LOOK_S, question.user)
        reach(CrashPoint.STAGE_BEFORE_COMMIT)
        await self._store.write(lambda s: run(self._context(s), steps.step, id, looked))
        reach(CrashPoint.STAGE_AFTER_COMMIT)

    def _todo(self, session: Session, id: str) -> _Todo:
        ctx = self._context(session)
        found = standing(ctx, id)
        ended, ready = found.ends, [] if found.stuck else found.ready()
        ahead = [] if found.stuck else found.ahead(ctx.now)
        orders = []
        for name, stage in found.stages.items():
            due = self._retry_s.get((id, name), 0.0) <= ctx.now
            if stage.state != StageState.SUBMITTING or not due:
                continue
            if (attempt := run_of(session, stage)) is not None:
                chosen = tuple(one for one in found.groups[name].stages if one.name in attempt.stages)
                linger_s = found.plan.linger_s if attempt.ahead else None
                where = dict(found.workflow.surroundings)
                if found.workflow.cancelled_by is not None and not found.was_made(session, stage):
                    continue  # its step ends it
                after = tuple(found.after.get(name, {}).values())
                orders.append(_Order(id, name, stage.attempt, found.workflow.user, chosen, where, linger_s, after))
        unmade = found.workflow.cancelled_by is not None and any(
            stage.state == StageState.SUBMITTING and not found.was_made(session, stage)
            for stage in found.stages.values()
        )
        late = any(not is_leaving(session, str(stage.job_id)) for stage in outdated(found))
        stopped = found.stuck and any(stage.state == StageState.WAITING for stage in found.stages.values())
        return _Todo(
            submitting=tuple(orders[:MADE_AT_ONCE]),
            waiting=len(orders) > MADE_AT_ONCE,
            go=tuple(_goes(session, found)),
            question=files.question(found, ended, ready),
            more=bool(ended or ready or ahead or stopped or unmade or may_follow(found, ctx.view) or late),
        )

    def _say_go(self, question: files.Question, names: tuple[str, ...]) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                self._hands.make_empty_file(question.user, Path(question.cwd, name))

    async def _make(self, order: _Order) -> None:
        """Make the job of an allocation, the same one however often this is tried."""
        id, name, attempt = order.id, order.name, order.attempt
        try:
            reading = await asyncio.to_thread(
                lambda: read(request_of(id, order.stages, attempt, order.surroundings, order.linger_s, order.after))
            )
            key = key_of(id, name, attempt)
            reading = replace(reading, behind_batch_jobs=bool(order.after))
            made = await self._submit(Submission(reading, order.user, key, key))
        except EjbError as error:
            if error.transient or error.code in (Code.STORE, Code.SPOOL, Code.BATCH_UNAVAILABLE):
                log.warning("workflow-stage", id=id, stage=name, error=error.sentence())
                now = await self._store.read(lambda s: self._context(s).now)
                self._retry_s[id, name] = now + RETRY_S
                return
            why = error.sentence()
            await self._store.write(lambda s: run(self._context(s), steps.refused, id, name, attempt, why))
            return
        reach(CrashPoint.STAGE_AFTER_JOB)
        await self._store.write(lambda s: run(self._context(s), steps.submitted, id, name, attempt, made.id))


@dataclass(frozen=True, slots=True)
class _Order:
    """A job that is to be made."""

    id: str
    name: str
    attempt: int
    user: str
    stages: tuple[Stage, ...]
    surroundings: Mapping[str, Any]
    linger_s: float | None
    after: tuple[str, ...]  # batch jobs that it follows


@dataclass(frozen=True, slots=True)
class _Todo:
    submitting: tuple[_Order, ...]
    waiting: bool  # there are more of them
    go: tuple[str, ...]
    question: files.Question
    more: bool


def _goes(session: Session, found: Standing) -> list[str]:
    """The files that let begin what was queued ahead, and for which everything is there now."""
    names = []
    for name, stage in found.stages.items():
        attempt = run_of(session, stage) if stage.state == StageState.SUBMITTED else None
        if attempt is not None and attempt.ahead and all(found.state(need).done for need in found.groups[name].needs):
            names.append(go_file(stage.workflow_id, name, stage.attempt))
    return names


def request_of(
    id: str,
    stages: tuple[Stage, ...],
    attempt: int,
    surroundings: Mapping[str, Any],
    linger_s: float | None = None,
    after: tuple[str, ...] = (),
) -> JobRequest:
    """The submission of an allocation, as `ejb submit` would make it."""
    first = stages[0]
    omax = None if first.min_tasks is None else str(max(1, first.tasks // first.min_tasks))
    elements = (f"--array=0-{len(first.elements) - 1}",) if first.elements else ()
    # What it waits for the word of may follow a J0, which is cancelled where the ranks need it no more.
    when = "afterok" if linger_s is None else "afterany"
    follows = (f"--dependency={when}:{':'.join(after)}",) if after else ()
    overrides = Overrides(
        ntasks=str(first.tasks),
        profile=first.profile,
        nodes=None if first.nodes is None else str(first.nodes),
        ntasks_per_node=None if first.ppn is None else str(first.ppn),
        time=_walltime(sum(stage.walltime_s for stage in stages) + (linger_s or 0.0)),
        name=first.name,
        partition=first.partition,
        account=first.account,
        qos=first.qos,
        elastic=first.elastic,
        engine=first.engine,
        omax=omax,
        restartable=True if first.restartable else None,
        options=(*elements, *follows),
    )
    return JobRequest(
        cwd=str(surroundings["cwd"]),
        script=script_of(id, stages, attempt, linger_s, follows=bool(after)),
        script_name=first.name,
        env=dict(surroundings.get("env") or {}),
        overrides=overrides,
        umask=surroundings.get("umask"),
        limits=dict(surroundings.get("limits") or {}),
        profiles=dict(surroundings.get("profiles") or {}),
    )


def _walltime(seconds: float) -> str:
    minutes, rest = divmod(max(1, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"


def _placed(error: EjbError, file: str, group: Group) -> EjbError:
    """What the site says of an allocation, with the place of its first stage, and its width as the file has it."""
    first = group.stages[0]
    where = f"{file}:{first.place.line}:{first.place.column}: stage {group.name} ({first.shape})"
    return EjbError(error.code, error.message, hint=error.hint, transient=error.transient, where=where)


def _answered(session: Session, user: str, key: str, digest: str) -> str | None:
    found = session.scalar(select(Workflow).where(Workflow.user == user, Workflow.key == key))
    if found is None:
        return None
    if found.request_hash != digest:
        message = "this Idempotency-Key was used with another request"
        raise EjbError(Code.KEY_REUSED, message, hint="a new request needs a new key")
    return found.id
