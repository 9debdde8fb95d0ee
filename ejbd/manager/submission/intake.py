"""Submissions: what waits is stored together, each is answered once it is durable.

Under a flood many submissions wait for the writer. What one of them costs is mostly the same for all (a savepoint, a
statement into each table). So those that have gathered while others were committed go into one function of the writer.
Each is admitted by itself: what is refused, and what is at fault, is its own.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.manager.facts.admitted import Admission
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.history import application_of
from ejbd.manager.facts.past.speculating import run_times
from ejbd.manager.jobspec import JobSpec, Reading
from ejbd.manager.rules.linked import dependencies, elements
from ejbd.manager.submission.admission import admit
from ejbd.manager.submission.together import Together
from ejbd.store.models import Array, Dependency, Event, IdempotencyKey, Job
from ejbd.store.states import JobState
from ejbd.store.store import Store
from ejbd.store.transitions import NEW_JOBS_TOPIC, add_events, insert_rows, wake
from ejbd.wire.kinds import EventKind, JobKind

MOST_DRAWS = 10

_KEYS = select(IdempotencyKey.user, IdempotencyKey.key, IdempotencyKey.request_hash, IdempotencyKey.job_id).where(
    IdempotencyKey.user.in_(bindparam("users", expanding=True)),
    IdempotencyKey.key.in_(bindparam("keys", expanding=True)),
)
_TOLD = select(Event.job_id, Event.data).where(
    Event.job_id.in_(bindparam("jobs", expanding=True)), Event.kind == EventKind.JOB_RECEIVED
)


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as its user asks for it. The same `key` and body (`request_hash`) from the same user get the same job.

    `walltimes`: what was learned for it (ejbd.manager.facts.past.speculating), where it is passed through or elastic as
    `elastic` says. `notes` are for its user, `elastic_notes` where it becomes elastic.
    """

    job: Reading
    user: str
    key: str | None
    request_hash: str
    walltimes: dict[str, Any] | None = None
    elastic: bool = False
    notes: tuple[str, ...] = ()
    elastic_notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a submission is answered with. `created`: not before, under the same key. `notes` are for its user."""

    id: str
    created: bool
    elastic: bool
    why: str
    notes: tuple[str, ...] = ()


Answer = Accepted | Exception


def answered(session: Session, submission: Submission) -> Accepted | None:
    """What was answered before to this key and body. Raises EjbError (KEY_REUSED) where the body was another."""
    answer = _known(session, [submission]).get((submission.user, submission.key))
    return None if answer is None else _again(answer, submission.request_hash)


def _known(session: Session, submissions: Sequence[Submission]) -> dict[tuple[str, str | None], tuple[str, Accepted]]:
    """(user, key) -> the body that came with it, and what it was answered."""
    named = [s for s in submissions if s.key is not None]
    if not named:
        return {}
    connection = session.connection()
    asked = {"users": sorted({s.user for s in named}), "keys": [s.key for s in named]}
    rows = connection.execute(_KEYS, asked).all()
    told: dict[str, dict[str, Any]] = {}
    if rows:
        events = connection.execute(_TOLD, {"jobs": [row.job_id for row in rows]})
        told = {event.job_id: event.data for event in events}
    found: dict[tuple[str, str | None], tuple[str, Accepted]] = {}
    for row in rows:
        data = told.get(row.job_id) or {}
        notes = tuple(data.get("notes", ()))
        answer = Accepted(row.job_id, False, bool(data.get("elastic")), str(data.get("reason", "")), notes)
        found[row.user, row.key] = row.request_hash, answer
    return found


def _again(known: tuple[str, Accepted], request_hash: str) -> Accepted:
    body, answer = known
    if body != request_hash:
        raise EjbError(
            Code.KEY_REUSED,
            "this Idempotency-Key was used with another request",
            hint="a new request needs a new key",
        )
    return answer


def store(ctx: Context, submissions: Sequence[Submission]) -> list[Answer]:
    """Store jobs, each of which is answered or refused for itself. Raises IntegrityError where a job's number, which is
    short enough to be typed, is another's already: then none is stored."""
    session, now = ctx.session, ctx.now
    known = _known(session, submissions)
    answers: list[Answer] = []
    jobs: list[dict[str, Any]] = []
    keys: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    arrays: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for submission in submissions:
        named = submission.user, submission.key
        try:
            if submission.key is not None and named in known:
                answers.append(_again(known[named], submission.request_hash))
                continue
            taken = admit(ctx, submission.job, submission.user)
        except Exception as refused:  # or a fault, which is this job's alone
            answers.append(refused)
            continue
        id = new_id()
        spec = replace(taken.spec, asked=None) if taken.elastic else taken.spec.passed_through()
        learned = submission.walltimes if taken.elastic == submission.elastic else None
        row = columns(taken, spec, submission.user, now, learned)
        # What has a begin of its own begins late enough, and a later one may lie behind a deadline.
        timed = _named(submission.job.spec, "--begin", "-b") or _named(submission.job.spec, "--deadline", "--deadline")
        row["unread"] = submission.job.numbered and not timed
        reason = dependencies.waits_for(taken.waits_for) if taken.waits_for else ""
        jobs.append({"id": id, "state": JobState.RECEIVED, "incarnation": 1, "reason": reason, **row})
        told: dict[str, Any] = {"queue": taken.queue, "elastic": taken.elastic, "reason": taken.why}
        if taken.code:
            told["code"] = taken.code
        if notes := (*submission.notes, *(submission.elastic_notes if taken.elastic else ())):
            told["notes"] = list(notes)
        if taken.waits_for:
            waiting.append({"job_id": id, "conditions": taken.waits_for, "never": False})
        if taken.array is not None:
            arrays.append(elements.new_array(id, taken.array))
            told["elements"] = taken.array
        events.append({"kind": EventKind.JOB_RECEIVED.value, "at_s": now, "job_id": id, "data": told})
        answers.append(Accepted(id, True, taken.elastic, taken.why, notes))
        if submission.key is not None:
            body = submission.request_hash
            keys.append({"user": named[0], "key": named[1], "request_hash": body, "job_id": id, "created_s": now})
            known[named] = body, Accepted(id, False, taken.elastic, taken.why, notes)
    if jobs:
        insert_rows(session, Job, jobs)
        insert_rows(session, IdempotencyKey, keys)
        insert_rows(session, Array, arrays)
        insert_rows(session, Dependency, waiting)
        add_events(session, events)
        wake(session, NEW_JOBS_TOPIC)
    return answers


def new_id() -> str:
    """A job's id: short enough to be typed, and never to be taken for a number of the batch system's."""
    while (id := secrets.token_hex(4)).isdigit():
        pass
    return id


def _named(spec: JobSpec, option: str, letter: str) -> str:
    """What a submission gives for an option (account, QOS, begin), in words of sbatch or qsub; "" where nothing."""
    words = [*spec.options, *spec.rigid_options]
    if spec.asked is not None:
        words = [*words, *spec.asked.options]
    found = ""
    for word, behind in itertools.pairwise([*words, ""]):
        if word.startswith(f"{option}="):
            found = word.partition("=")[2]
        elif word in (option, letter):
            found = behind
        elif word.startswith(letter) and len(word) > 2:
            found = word[2:]
    return found[:256]


def columns(
    taken: Admission, spec: JobSpec, user: str, now: float, walltimes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What a submission says of its job's row. `walltimes`: that were learned for it."""
    run_s = (run_times(walltimes) or [spec.walltime_s])[0]
    return {
        "name": spec.name,
        "user": user,
        "queue": taken.queue,
        "account": _named(spec, "--account", "-A"),
        "qos": _named(spec, "--qos", "-q"),
        "elastic": taken.elastic,
        "kind": (JobKind.ARRAY if taken.array is not None else spec.kind).value,
        "engine": taken.engine,
        "application": application_of(user, spec, taken.engine),
        "processes": spec.processes,
        "walltime_s": run_s,
        "walltimes": walltimes,
        "spec": spec.to_json(),
        "held": spec.hold,
        "submit_s": now,
        "unread": False,
        "members": [],
    }


class Intake:
    """Takes submissions to the writer: those that have come while others were committed go together."""

    def __init__(self, store: Store, context: Callable[[Session], Context]) -> None:
        self._store = store
        self._context = context
        self._together: Together[Submission, Accepted] = Together(self._stored, "intake")

    async def store(self, submission: Submission) -> Accepted:
        """Durable when this returns. Raises EjbError where it is refused, or the database does not take it.

        A caller that is cancelled before its turn leaves no trace; later, the job is stored without it.
        """
        return await self._together.ask(submission, submission.user)

    async def _stored(self, submissions: list[Submission]) -> Sequence[Answer]:
        for _ in range(MOST_DRAWS):
            try:
                return await self._store.write(partial(self._write, submissions))
            except IntegrityError as again:
                error: Exception = again
            except EjbError as failed:
                return [failed] * len(submissions)
            except Exception as fault:
                error = fault
                break
        if len(submissions) == 1:
            return [error]
        return [answer for one in submissions for answer in await self._stored([one])]

    def _write(self, submissions: Sequence[Submission], session: Session) -> list[Answer]:
        return store(self._context(session), submissions)
