"""What the API reads. Rows come back as they are; :meth:`Store.read` detaches them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, func, or_, select
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.base import ExecutableOption

from ejbd.core import overhead
from ejbd.core.cost import RECENT
from ejbd.errors import Code, EjbError
from ejbd.store.models import Array, Epoch, Event, Intent, Job, Overhead, QueuePause, Run, Subjob, Worker
from ejbd.store.states import (
    LIVING_JOB,
    OPEN_SUBJOB,
    TERMINAL_JOB,
    TERMINAL_SUBJOB,
    IntentState,
    JobState,
    SubjobState,
)
from ejbd.store.timeline import PastInterval, Phase, intervals
from ejbd.wire.kinds import JobKind
from ejbd.wire.numbers import is_number

__all__ = [
    "PastInterval",
    "Phase",
    "events",
    "intervals",
    "job_counts",
    "job_epochs",
    "job_events",
    "job_subjobs",
    "list_jobs",
    "resolve_job",
    "resolve_range",
]

LAST = re.compile(r"last(?:-([0-9]{1,9}))?")
ELEMENT = re.compile(r"(?P<array>[A-Za-z0-9-]+)_(?P<index>[0-9]{1,7})", re.ASCII)
LAST_ID = "z" * 16
ALL = "all"
RANGE = ".."
CANDIDATES_NAMED = 5
RECENT_EVENTS = 100_000
SORTED_JOBS = 20_000  # by another order than that of their submission
SEARCHED_JOBS = 100_000  # for a part of a name
PACE_RUNS = 256  # the newest whole runs by which the pace is known


def list_jobs(
    session: Session,
    *,
    user: str | None = None,
    states: Collection[JobState] | None = None,
    queue: str | None = None,
    name: str | None = None,
    name_part: str | None = None,
    array: str | None = None,
    between: tuple[int, int] | None = None,
    limit: int = 100,
    before_seq: int | None = None,
    order: str = "",
    offset: int = 0,
    options: Sequence[ExecutableOption] = (),
) -> Sequence[Job]:
    """Jobs, newest first. The next page is the one `before_seq` of the last job of this one.

    `name_part` stands anywhere in the name, in capitals or not, and is looked for in the newest SEARCHED_JOBS.
    `between`: the `seq` of two jobs, both of which are meant, too. Elements are listed of one `array` alone: otherwise
    the job stands for them that the array is.

    `order`: by a key of :data:`ORDERS`, from the greatest on with a `-` before it; what has no such value comes last.
    The newest SORTED_JOBS are sorted. Then the next page is the one with the `offset` behind it.
    """
    by = ORDERS.get(order.removeprefix("-"))
    keys = [Job.seq.desc()]
    if by is not None:
        keys = [(by.desc() if order.startswith("-") else by.asc()).nulls_last(), *keys]
    filters = job_filters(user=user, states=states, queue=queue, name=name, name_part=name_part, array=array)
    if between is not None:
        filters.append(Job.seq.between(*between))
    if before_seq is not None:
        filters.append(Job.seq < before_seq)
    page = select(Job).where(*filters).order_by(*keys).limit(limit).offset(offset or None)
    if by is not None:  # only those of the page are read as a whole
        page = page.where(_among_newest(filters, SORTED_JOBS)).with_only_columns(Job.seq)
        page = select(Job).where(Job.seq.in_(page)).order_by(*keys)
    return session.scalars(page.options(*options)).all()


def _among_newest(filters: Sequence[ColumnElement[bool]], most: int) -> ColumnElement[bool]:
    """So many of those that meet the filters, however many did so before. They are counted along an index."""
    last = select(Job.seq).where(*filters).order_by(Job.seq.desc()).offset(most - 1).limit(1).correlate(None)
    return Job.seq >= func.coalesce(last.scalar_subquery(), 0)


def open_or_ended(table: type[Job] | type[Subjob], since_s: float) -> ColumnElement[bool]:
    """Rows that have not ended, or did so from `since_s` on: however many ended before, they cost nothing."""
    alive, over = (LIVING_JOB, TERMINAL_JOB) if table is Job else (OPEN_SUBJOB, TERMINAL_SUBJOB)
    return or_(table.state.in_(alive), and_(table.state.in_(over), table.end_s >= since_s))


def newest_events(session: Session) -> ColumnElement[bool]:
    """The last RECENT_EVENTS events: what is looked for in them is not looked for in all that ever happened."""
    return Event.id > (session.scalar(select(func.max(Event.id))) or 0) - RECENT_EVENTS


ORDERS: Mapping[str, ColumnElement[Any]] = {
    "name": func.lower(Job.name),
    "state": Job.state.expression,
    "user": Job.user.expression,
    "queue": Job.queue.expression,
    "width": Job.processes.expression,
    "submitted": Job.submit_s.expression,
    "started": Job.start_s.expression,
    "ends": func.coalesce(Job.end_s, Job.expected_completion_s),
}
"""By what a list of jobs can be ordered."""


def job_filters(
    *,
    user: str | None = None,
    states: Collection[JobState] | None = None,
    queue: str | None = None,
    name: str | None = None,
    name_part: str | None = None,
    array: str | None = None,
) -> list[ColumnElement[bool]]:
    """What a job has to meet for a list (see :func:`list_jobs`)."""
    # Few jobs are alive, and many have ended: those are found by their state, these along the list.
    alive = states is not None and LIVING_JOB.issuperset(states)
    found = [Job.array_id.is_(None) if array is None else Job.array_id == array]
    if name is not None:
        found.append(Job.name == name)
    if user is not None:
        found.append((Job.user.concat("") if alive else Job.user) == user)
    if states is not None:
        found.append((Job.state if alive else Job.state.concat("")).in_([state.value for state in states]))
    if queue is not None:
        found.append(Job.queue == queue)
    if name_part is not None:
        found += [_among_newest(found, SEARCHED_JOBS), Job.name.icontains(name_part, autoescape=True)]
    return found


def count_by_state(session: Session, filters: Sequence[ColumnElement[bool]]) -> dict[JobState, int]:
    """How many jobs meet the filters, by their states."""
    rows = session.execute(select(Job.state, func.count()).where(*filters).group_by(Job.state))
    return {JobState(state): count for state, count in rows}


def processors_in_use(session: Session, filters: Sequence[ColumnElement[bool]]) -> int:
    """Processors of the running subjobs of the jobs that meet the filters, and of their elements, without those that
    are given back."""
    one = aliased(Job)
    running = select(func.coalesce(one.array_id, one.id).label("id"), Subjob.processors).join(
        one, Subjob.job_id == one.id
    )
    held = running.where(Subjob.state == SubjobState.RUNNING, ~Subjob.releasing).subquery()
    of_them = select(func.sum(held.c.processors)).join(Job, Job.id == held.c.id).where(*filters)
    return session.scalar(of_them) or 0


def resolve_job(session: Session, selector: str, user: str, *, all_users: bool = False) -> Job:
    """The job that `selector` names. It is `last` (the newest of `user`), `last-2` (two before it), a whole id, or the
    beginning of just one id. It may also be a number of the job (`ejbd.wire.numbers`), which goes before a beginning.
    Any of these with `_7` behind it names an element of that array.

    Only `user`'s own jobs are looked at, unless `all_users` (which `last` ignores). Raises EjbError (not-found;
    conflict if several jobs' ids begin so).
    """
    if element := ELEMENT.fullmatch(selector):
        return _element(session, element, user, all_users=all_users)
    last = LAST.fullmatch(selector)
    own = select(Job).where(Job.user == user, Job.array_id.is_(None))
    if last is not None:
        back = int(last[1] or 0)
        newest = session.scalar(own.order_by(Job.seq.desc()).offset(back).limit(1))
        if newest is None:
            count = session.scalar(select(func.count()).select_from(own.subquery()))
            raise EjbError(Code.NOT_FOUND, f"{user} has {f'{count} jobs' if count else 'no job yet'}", where=selector)
        return newest
    theirs = select(Job) if all_users else select(Job).where(Job.user == user)
    if (numbered := by_number(session, theirs, selector)) is not None:
        return numbered
    return _by_id(session, select(Job).where(Job.array_id.is_(None)) if all_users else own, selector, selector)


_JOB = select(Job).where(Job.id == bindparam("id"))


def job(session: Session, id: str) -> Job:
    """The job of this id, which is there."""
    return session.scalars(_JOB, {"id": id}).one()


def by_number(session: Session, within: Select[Job], number: str) -> Job | None:
    """The job that goes by this number, or has a batch job with it. None: there is none.

    The batch system may have given a number twice: the job that lives goes before one that has ended, then the newer
    one. An array goes before its element of the same number.
    """
    if not is_number(number):
        return None
    ids = {*session.scalars(select(Job.id).where(Job.number == number))}
    ids.update(session.scalars(select(Subjob.job_id).where(Subjob.batch_id == number)))
    if not ids:
        return None
    first = case((Job.state.in_(TERMINAL_JOB), 1), else_=0), case((Job.number == number, 0), else_=1)
    return session.scalar(
        within.where(Job.id.in_(ids)).order_by(*first, Job.array_id.is_not(None), Job.seq.desc()).limit(1)
    )


def _by_id(session: Session, within: Select[Job], begins: str, selector: str) -> Job:
    exact = session.scalar(within.where(Job.id == begins))
    if exact is not None:
        return exact
    begun = Job.id.startswith(begins, autoescape=True), Job.id.between(begins, begins + LAST_ID)  # the index has these
    query = within.where(*begun).order_by(Job.seq.desc())
    found = session.scalars(query.limit(CANDIDATES_NAMED + 1)).all() if begins else []
    if not found:
        raise EjbError(Code.NOT_FOUND, f"there is no job {selector!r}", hint="`ejb status` lists your jobs")
    if len(found) > 1:
        named = [job.id for job in found[:CANDIDATES_NAMED]]
        more = ", ..." if len(found) > CANDIDATES_NAMED else ""
        raise EjbError(
            Code.CONFLICT,
            f"{begins!r} is the beginning of several jobs' ids: {', '.join(named)}{more}",
            hint="give more of the id",
            details={"candidates": named},
        )
    return found[0]


def _element(session: Session, named: re.Match[str], user: str, *, all_users: bool) -> Job:
    if LAST.fullmatch(named["array"]):
        array = resolve_job(session, named["array"], user)
    else:
        arrays = select(Job).where(Job.kind == JobKind.ARRAY)
        within = arrays if all_users else arrays.where(Job.user == user)
        numbered = by_number(session, within, named["array"])
        array = numbered if numbered is not None else _by_id(session, within, named["array"], named[0])
    index = int(named["index"])
    found = session.scalar(select(Job).where(Job.array_id == array.id, Job.array_index == index))
    if found is not None:
        return found
    if session.get(Array, array.id) is None:
        raise EjbError(Code.NOT_FOUND, f"job {array.id} is no elastic array")
    hint = f"`ejb status {array.id}` tells which are to come; `ejb cancel` takes them, too"
    raise EjbError(Code.NOT_FOUND, f"element {index} of array {array.id} is no job (yet)", hint=hint)


def resolve_range(session: Session, selector: str, user: str, *, all_users: bool = False) -> tuple[int, int] | None:
    """The first and the last `seq` that `A..B` names (in either order; each as :func:`resolve_job` takes it), None for
    `all`. Raises EjbError (invalid for what is neither; as resolve_job)."""
    if selector == ALL:
        return None
    first, dots, last = selector.partition(RANGE)
    if not (first and dots and last):
        hint = f"e.g. last-3{RANGE}last, or {ALL}"
        raise EjbError(Code.INVALID, f"{selector!r} names no range of jobs", hint=hint)
    ends = [resolve_job(session, end, user, all_users=all_users).seq for end in (first, last)]
    return min(ends), max(ends)


def job_subjobs(session: Session, job_id: str) -> Sequence[Subjob]:
    """The subjobs of a job in the order in which they were made; J0 first."""
    return session.scalars(select(Subjob).where(Subjob.job_id == job_id).order_by(Subjob.ordinal)).all()


def job_epochs(session: Session, job_id: str) -> Sequence[Epoch]:
    """The epochs of a job in order."""
    return session.scalars(select(Epoch).where(Epoch.job_id == job_id).order_by(Epoch.number)).all()


def job_events(session: Session, job_id: str, after_id: int, limit: int) -> Sequence[Event]:
    """The events of a job that came after event `after_id` (0: all), oldest first."""
    query = select(Event).where(Event.job_id == job_id, Event.id > after_id).order_by(Event.id).limit(limit)
    return session.scalars(query).all()


def last_job_events(session: Session, job_id: str, most: int) -> tuple[Sequence[Event], int]:
    """The newest events of a job, newest first, and how many it has."""
    query = select(Event).where(Event.job_id == job_id).order_by(Event.id.desc()).limit(most)
    count = session.scalar(select(func.count()).select_from(Event).where(Event.job_id == job_id)) or 0
    return session.scalars(query).all(), count


def events(session: Session, after_id: int, limit: int, kinds: Collection[str] | None = None) -> Sequence[Event]:
    """All users' events after event `after_id`, oldest first; only those of `kinds` if given."""
    query = select(Event).where(Event.id > after_id).order_by(Event.id).limit(limit)
    if kinds is not None:
        query = query.where(Event.kind.in_(kinds))
    return session.scalars(query).all()


def subjob_counts(session: Session) -> dict[SubjobState, int]:
    """How many subjobs (J0 and passed-through jobs are among them) are in each state that is not an end."""
    query = select(Subjob.state, func.count()).where(Subjob.state.in_(OPEN_SUBJOB)).group_by(Subjob.state)
    alive = {state: 0 for state in SubjobState if state not in TERMINAL_SUBJOB}
    return alive | {SubjobState(state): count for state, count in session.execute(query)}


def open_intents(session: Session) -> dict[tuple[str, IntentState], int]:
    """Actions on the batch system that are not over: kind and state -> how many."""
    states = (IntentState.PENDING, IntentState.EXECUTING, IntentState.UNKNOWN)
    query = select(Intent.kind, Intent.state, func.count()).where(Intent.state.in_(states))
    counted = session.execute(query.group_by(Intent.kind, Intent.state))
    return {(kind, IntentState(state)): count for kind, state, count in counted}


def queue_pauses(session: Session) -> Sequence[QueuePause]:
    """Queues of which something failed last."""
    return session.scalars(select(QueuePause).order_by(QueuePause.name, QueuePause.what)).all()


def overheads(session: Session) -> dict[tuple[str, str], float]:
    """Queue and hop (:class:`ejbd.core.overhead.Hop`) -> the median (seconds) of the newest few, of all users."""
    found = {}
    for queue, hop in session.execute(select(Overhead.queue, Overhead.hop).distinct()):
        query = select(Overhead.processors, Overhead.seconds).where(Overhead.queue == queue, Overhead.hop == hop)
        newest = session.execute(query.order_by(Overhead.id.desc()).limit(RECENT))
        found[queue, hop] = overhead.expected([overhead.Took(*row) for row in newest], None, 0.0, "").value
    return found


def pace(session: Session) -> float | None:
    """How much slower commands have run under EJB of late than as ordinary jobs; None where none has run both ways."""
    query = select(Run.work, Run.full_s, Run.elastic, Run.over).where(Run.elastic.is_not(None))
    rows = session.execute(query.order_by(Run.id.desc()).limit(PACE_RUNS))
    runs = [overhead.WholeRun(work, full_s, bool(elastic)) for work, full_s, elastic, over in rows if not over]
    found = overhead.pace(runs)
    return found.value if found.samples else None


def living_workers(session: Session) -> int:
    """How many workers are believed to be alive."""
    return session.scalar(select(func.count()).select_from(Worker).where(Worker.alive)) or 0


def job_counts(session: Session) -> dict[JobState, int]:
    """How many jobs are in each state, the empty ones too."""
    counted = session.execute(select(Job.state, func.count()).group_by(Job.state)).all()
    return dict.fromkeys(JobState, 0) | {JobState(state): count for state, count in counted}
