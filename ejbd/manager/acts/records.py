"""What the spool keeps of a job's rows, and what a database that is restored from an older copy takes from there.

The batch system and the spool know more than such a database. What they prove is adopted: batch jobs by their tags, and
jobs by their records. What has ended meanwhile is not run a second time: where nothing says how it ended, the job is
unknown, and its user or an administrator cancels it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from ejbd.core.view import BatchJobView
from ejbd.manager.acts.subjobs import add_intent
from ejbd.manager.facts import arrays
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobspec.indices import folded, ranges, unfolded
from ejbd.manager.rules.linked import elements
from ejbd.store import marks, queries
from ejbd.store.models import Array, Epoch, Event, IdempotencyKey, Intent, Job, Mark, Operation, Subjob, Worker
from ejbd.store.states import EpochState, IntentState, JobState, OperationState, SubjobState
from ejbd.store.transitions import add_event, move_epoch, move_intent, move_job, move_operation, move_subjob
from ejbd.wire.kinds import EventKind, IntentKind, JobKind, SubjobRole

MOST_BYTES = 16 << 20
SKIPPED_NUMBERS = 1_000_000  # of operations and events: the older ones were told to workers and clients
NOT_KNOWN = "it was submitted, and the database was restored from an older copy: how it ended is not known"
FOUND = "the database was restored from an older copy, and does not know it"
_KEPT_ROLES = (SubjobRole.PLACEHOLDER, SubjobRole.RIGID, SubjobRole.ASIDE)
_OF_ARRAY = ("most", "dropped", "cancelled_by")
_OF_END = ("start_s", "end_s", "exit_code", "exit_signal")
_OF_SUBJOB = ("ordinal", "role", "processors", "walltime_s", "usable_s", "anchor")
_NUMBERED = (("operations", "seq"), ("events", "id"), ("intents", "id"))


def row_of(subjob: Subjob) -> dict[str, Any]:
    """What `subjob.json` keeps of a row."""
    return {name: getattr(subjob, name) for name in _OF_SUBJOB}


def record_of(session: Session, job: Job) -> dict[str, Any]:
    """What `job.json` keeps of a job: its row as it is submitted, what its user was told, and under which key. Of an
    element the same of its array."""
    row = {column.key: getattr(job, column.key) for column in Job.__table__.columns if column.key != "seq"}
    key = session.scalars(select(IdempotencyKey).where(IdempotencyKey.job_id == job.id)).first()
    told = select(Event.data).where(Event.job_id == job.id, Event.kind == EventKind.JOB_RECEIVED)
    named = key and {"key": key.key, "request_hash": key.request_hash, "created_s": key.created_s}
    record = {"row": row, "key": named, "told": session.scalars(told).first() or {}}
    array = session.get(Array, job.array_id) if job.array_id is not None else None
    if array is not None:  # which has no batch job of its own, and so no folder
        beside = {name: getattr(array, name) for name in _OF_ARRAY}
        record["array"] = {**record_of(session, queries.job(session, array.job_id)), "beside": beside}
    return record


@dataclass(frozen=True, slots=True)
class KeptSubjob:
    """A subjob by its file. `code`: with which it ended, where it says so."""

    id: str
    secret: str
    row: dict[str, Any]
    code: int | None


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A job by its folder. `record`: {} where there is none that can be read."""

    id: str
    user: str
    record: dict[str, Any]
    subjobs: tuple[KeptSubjob, ...]

    @property
    def submit_s(self) -> float:
        return float(self.record.get("row", {}).get("submit_s") or 0.0)


def read_kept(spool: Spool, job: str, user: str) -> KeptJob:
    """What the spool of `user` ("": the daemon's own) keeps of a job. Blocks; what cannot be read is left out."""
    record = _read(spool, spool.record_file(job))
    try:
        names = sorted(spool.files.names(spool.job_dir(job) / "subjobs"))
    except OSError:
        names = []
    subjobs = []
    for name in names:
        told = _read(spool, spool.subjob_file(job, name))
        if isinstance(told.get("row"), dict) and isinstance(told.get("secret"), str):
            subjobs.append(KeptSubjob(name, told["secret"], told["row"], _code(spool, job, name)))
    return KeptJob(job, user, record, tuple(sorted(subjobs, key=lambda one: int(one.row["ordinal"]))))


def _read(spool: Spool, path: Any) -> dict[str, Any]:
    try:
        found = json.loads(spool.files.read(path, MOST_BYTES)[0])
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(spool: Spool, job: str, subjob: str) -> int | None:
    try:
        return int(spool.files.read(spool.exit_file(job, subjob), 64)[0].split()[0])
    except (OSError, ValueError, IndexError):
        return None


def adopt(
    ctx: Context,
    kept: Sequence[KeptJob],
    listed: Mapping[str, BatchJobView],
    ends: Mapping[str, Mapping[str, Any]],
    later: int,
) -> tuple[int, int]:
    """Bring the database up to what the spool keeps and the batch system lists (tag -> batch job).

    `ends`: job -> columns of its row at its end, as they were noted. `later`: the number of the spool's sign. Returns
    how many jobs were found, and of how many the end is not known.
    """
    found = unknown = 0
    for one in sorted(kept, key=lambda one: one.submit_s):
        job = ctx.session.scalars(select(Job).where(Job.id == one.id)).first()
        if job is None:
            job = _insert_job(ctx, one)
            if job is None:
                continue
            found += 1
        if not JobState(job.state).terminal:
            _adopt_subjobs(ctx, job, one, listed, ends.get(job.id))
            unknown += job.state == JobState.UNKNOWN
    skip_numbers(ctx.session)
    ctx.session.merge(Mark(name=marks.SIGN, value=str(later + 1)))
    return found, unknown


def _insert_job(ctx: Context, kept: KeptJob) -> Job | None:
    """None where the record is no row of this version's, or not this user's."""
    row = dict(kept.record.get("row", {}))
    try:
        if row["id"] != kept.id or kept.user not in ("", row["user"]) or row["kind"] == JobKind.ARRAY:
            return None
        array = _array_of(ctx, kept.record.get("array"), row) if row["array_id"] is not None else None
        if array is None:
            row["array_id"] = row["array_index"] = None
        job = _insert_row(ctx, {**kept.record, "row": row})
    except Exception:  # written by another version, torn, or not by this daemon
        return None
    if array is not None:
        ahead = unfolded(array.ahead)
        ahead.discard(str(job.array_index))
        array.ahead, array.open, array.changed = folded(ranges(ahead.intiter())), array.open + 1, True
    return job


def _array_of(ctx: Context, record: dict[str, Any] | None, element: Mapping[str, Any]) -> Array | None:
    """The array of an element, inserted where the database does not know it. None: nothing can be read of it.

    What was no job yet still comes; elements that have folders of their own are taken out of that.
    """
    session, row = ctx.session, (record or {}).get("row", {})
    found = session.get(Array, element["array_id"])
    if found is not None or record is None:
        return found
    if (row["id"], row["user"], row["kind"]) != (element["array_id"], element["user"], JobKind.ARRAY):
        return None
    columns = {**elements.new_array(row["id"], JobSpec.from_json(row["spec"]).array or ""), **record["beside"]}
    ahead = unfolded(columns["ahead"]) - unfolded(columns["dropped"])
    with session.begin_nested():
        _insert_row(ctx, record)
        session.add(array := Array(**{**columns, "ahead": folded(ranges(ahead.intiter()))}))
        session.flush()
    return array


def _insert_row(ctx: Context, record: Mapping[str, Any]) -> Job:
    """Raises whatever is wrong with it; then nothing is inserted."""
    session, row, key = ctx.session, record["row"], record.get("key")
    JobSpec.from_json(row["spec"])
    job = Job(**{**row, "state": JobState.RECEIVED, "incarnation": 1, "reason": ""})
    with session.begin_nested():
        session.add(job)
        session.flush()
        if key is not None:
            session.add(IdempotencyKey(user=job.user, job_id=job.id, **key))
            session.flush()
    add_event(session, EventKind.JOB_RECEIVED, ctx.now, job_id=job.id, **record.get("told", {}))
    add_event(session, EventKind.JOB_ADOPTED, ctx.now, job_id=job.id, reason=FOUND)
    return job


def _adopt_subjobs(
    ctx: Context, job: Job, kept: KeptJob, listed: Mapping[str, BatchJobView], end: Mapping[str, Any] | None
) -> None:
    session = ctx.session
    rows = {s.id: s for s in session.scalars(select(Subjob).where(Subjob.job_id == job.id))}
    code: int | None = None
    for one in kept.subjobs:
        code = one.code if one.row["role"] == SubjobRole.RIGID else code
        subjob = rows.get(one.id)
        if subjob is None:
            subjob = rows[one.id] = _insert_subjob(ctx, job, one)
        if subjob.batch_id is None and not SubjobState(subjob.state).terminal:
            _settle(ctx, subjob, one, listed.get(subjob.tag))
    lives = any(
        (seen := listed.get(s.tag)) is not None and not seen.state.ended
        for s in rows.values()
        if not SubjobState(s.state).terminal
    )
    if end is not None and not lives:
        _end_as_noted(ctx, job, list(rows.values()), end)
        return
    submitted = [s for s in rows.values() if s.batch_id is not None or s.state == SubjobState.LOST]
    if job.state == JobState.RECEIVED and submitted:
        move_job(session, job, JobState.WAITING, ctx.now)
    waits = any(s.state == SubjobState.PLANNED for s in rows.values())
    is_listed = any(s.role == SubjobRole.RIGID and s.batch_id is not None for s in rows.values())
    if lives or waits or is_listed or not submitted or job.state not in (JobState.WAITING, JobState.RUNNING):
        return  # what is listed, or was known, is followed by polls
    for subjob in rows.values():
        if not SubjobState(subjob.state).terminal:
            _give_up(ctx, subjob)
    if code is None:
        move_job(session, job, JobState.UNKNOWN, ctx.now, reason=NOT_KNOWN)
    else:
        job.exit_code = code
        move_job(session, job, JobState.FAILED if code else JobState.COMPLETED, ctx.now)


def _end_as_noted(ctx: Context, job: Job, subjobs: Sequence[Subjob], end: Mapping[str, Any]) -> None:
    """It has ended on the later database. What the copy believes to be under way is over."""
    session, now = ctx.session, ctx.now
    for subjob in subjobs:
        if not SubjobState(subjob.state).terminal:
            _give_up(ctx, subjob)
    unanswered = Operation.state.in_((OperationState.QUEUED, OperationState.LEASED))
    for operation in session.scalars(select(Operation).where(Operation.job_id == job.id, unanswered)):
        move_operation(session, operation, OperationState.ABANDONED, now)
    live = Epoch.state.in_([state for state in EpochState if state.live])
    for epoch in session.scalars(select(Epoch).where(Epoch.job_id == job.id, live)):
        move_epoch(session, epoch, EpochState.FAILED, now, reason=FOUND)
    session.execute(update(Worker).where(Worker.job_id == job.id, Worker.alive).values(alive=False))
    if job.state == JobState.RECEIVED:
        move_job(session, job, JobState.WAITING, now)
    move_job(session, job, JobState(end["state"]), now, reason=str(end.get("reason") or ""))
    for name in _OF_END:
        setattr(job, name, end.get(name))


def _insert_subjob(ctx: Context, job: Job, kept: KeptSubjob) -> Subjob:
    array = (job.spec.get("asked") or {}).get("array") if kept.row["role"] == SubjobRole.RIGID else None
    subjob = Subjob(
        id=kept.id,
        job_id=job.id,
        tag=TAG_PREFIX + kept.id,
        state=SubjobState.PLANNED,
        created_s=ctx.now,
        nodes=[],
        reason="",
        elements=arrays.new_elements(array),
        **{name: kept.row[name] for name in _OF_SUBJOB},
    )
    ctx.session.add(subjob)
    ctx.session.flush()
    return subjob


def _settle(ctx: Context, subjob: Subjob, kept: KeptSubjob, seen: BatchJobView | None) -> None:
    """Its batch job is the one that bears its tag; where none does it has ended, or was never there."""
    session, now = ctx.session, ctx.now
    if seen is None or (seen.state.ended and subjob.role != SubjobRole.RIGID):
        _give_up(ctx, subjob)
        return
    subjob.worker_secret, subjob.batch_id = kept.secret, seen.base_id
    subjob.submit_s = seen.submit_s if seen.submit_s is not None else now
    move_subjob(session, subjob, SubjobState.PENDING, now, batch_id=seen.base_id)
    for intent in _submissions(session, subjob):
        if intent.state == IntentState.PENDING:
            move_intent(session, intent, IntentState.EXECUTING, now)
        move_intent(session, intent, IntentState.DONE, now, batch_id=seen.base_id, how="adopted")
    if subjob.role not in _KEPT_ROLES:  # what was planned with it is forgotten
        subjob.releasing = True
        add_intent(ctx, IntentKind.CANCEL, subjob.job_id, subjob=subjob)


def _give_up(ctx: Context, subjob: Subjob) -> None:
    for intent in _submissions(ctx.session, subjob):
        state = IntentState.DROPPED if intent.state == IntentState.PENDING else IntentState.FAILED
        move_intent(ctx.session, intent, state, ctx.now, reason=FOUND)
    move_subjob(ctx.session, subjob, SubjobState.LOST, ctx.now, reason=NOT_KNOWN)


def _submissions(session: Session, subjob: Subjob) -> list[Intent]:
    open_ones = Intent.state.in_((IntentState.PENDING, IntentState.EXECUTING, IntentState.UNKNOWN))
    query = select(Intent).where(Intent.subjob_id == subjob.id, Intent.kind == IntentKind.SUBMIT, open_ones)
    return list(session.scalars(query))


def skip_numbers(session: Session) -> None:
    """A worker takes an operation with a number that it knows for one that it has done."""
    for table, column in _NUMBERED:
        if session.get_bind().dialect.name == "sqlite":
            given = {"of": table}
            last = session.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :of"), given).scalar()
            session.execute(text("DELETE FROM sqlite_sequence WHERE name = :of"), given)
            row = {"of": table, "next": (last or 0) + SKIPPED_NUMBERS}
            session.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:of, :next)"), row)
        else:
            sequence = f"pg_get_serial_sequence('{table}', '{column}')"
            session.execute(text(f"SELECT setval({sequence}, nextval({sequence}) + {SKIPPED_NUMBERS})"))
