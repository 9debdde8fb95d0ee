"""Submitting, listing, showing and steering jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session
from sqlalchemy.sql.base import ExecutableOption

from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.models import (
    NAME,
    Api,
    EvolveRequest,
    EvolvingCourse,
    Explanation,
    JobCreated,
    JobDetail,
    JobPage,
    JobSubmission,
    Plan,
    ResizeRequest,
    SignalRequest,
)
from ejbd.api.port import ManagerPort
from ejbd.api.selecting import ELEMENTS, SELECTION, Selector, SomeSelector, job_of, select_job
from ejbd.api.submission import read_submission, submitted
from ejbd.api.views import ROW_HAS, JobRow, job_detail, job_rows, job_views
from ejbd.errors import Code, EjbError
from ejbd.store import queries
from ejbd.store.models import Job
from ejbd.wire.states import LIVING_JOB, TERMINAL_JOB, JobState

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
LONGEST_WAIT_S = 60.0

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="the same key and body give the same job, however often they are sent",
    ),
]


class JobFilter(Api):
    """Which jobs are listed."""

    state: Annotated[tuple[JobState, ...], Field(description="any of these", max_length=16)] = ()
    queue: Annotated[str | None, Field(max_length=256, pattern=NAME)] = None
    user: Annotated[str | None, Field(max_length=256, pattern=NAME, description="for operators")] = None
    mine: Annotated[bool, Field(description="one's own alone, for operators too")] = False
    alive: Annotated[bool | None, Field(description="true: those that have not ended; false: those that have")] = None
    name: Annotated[str | None, Field(max_length=4096, pattern=NAME)] = None
    name_part: Annotated[
        str | None,
        Field(max_length=4096, pattern=NAME, description="stands anywhere in the name, in capitals or not"),
    ] = None
    array: Annotated[
        str | None,
        Field(max_length=64, pattern=SELECTION, description="the elements of this array; else none are listed"),
    ] = None
    number: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,9}$")], ...],
        Field(max_length=200, description="of any of these numbers, elements too; each names one job at most"),
    ] = ()
    select: Annotated[
        str | None,
        Field(max_length=256, pattern=SELECTION, description="`A..B`: from one job to another as submitted; `all`"),
    ] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    before: Annotated[int | None, Field(ge=1, le=2**53, description="`next` of the page before")] = None


@router.post("", status_code=201, responses={200: {"model": JobCreated, "description": "Answered before"}})
async def submit(
    request: Request,
    manager: Manager,
    caller: Caller,
    body: JobSubmission,
    response: Response,
    key: IdempotencyKey = None,
) -> JobCreated:
    """Store a job. It is durable when this answers."""
    answer = await submitted(manager, request.app.state.allowances, caller, body, key)
    response.status_code, headers = answer.status_and_headers()
    response.headers.update(headers)
    return answer


@router.post("/plan")
async def plan(request: Request, manager: Manager, caller: Caller, body: JobSubmission) -> Plan:
    """What would be done with such a job now, and why. Nothing is kept."""
    request.app.state.allowances.refuse_long_script(caller, body)
    reading, _ = await read_submission(body, caller.user, hashed=False)
    found, spec = await manager.plan(reading, caller.user), reading.spec
    shape = {"name": spec.name, "processes": spec.processes, "walltime_s": spec.walltime_s or None}
    planned = (found["decision"] or {}).get("timeline", [])
    return Plan.model_validate({**found, **shape, "planned": planned})


@router.get("")
async def list_jobs(manager: Manager, caller: Caller, query: Annotated[JobFilter, Query()]) -> JobPage:
    """Jobs, newest first: one's own, for operators all users'."""
    _may_see(caller, query)

    def look(session: Session) -> JobPage:
        if query.number:
            found = _numbered(session, query.number, _listed_of(caller, query))
            return JobPage(jobs=job_views(found, session), next=None)
        page, older = _page(session, caller, query)
        return JobPage(jobs=job_views(page, session), next=older)

    return await manager.store.read(look)


async def list_rows(
    manager: ManagerPort, caller: Principal, query: JobFilter, order: str = "", offset: int = 0
) -> RowPage:
    """The same as rows of a list that is looked at, without asking for numbers; `order` is of `queries.list_jobs`."""
    _may_see(caller, query)

    def look(session: Session) -> RowPage:
        page, older = _page(session, caller, query, [ROW_HAS], order, offset)
        filters = queries.job_filters(**_filters(caller, query))
        counts, in_use = queries.count_by_state(session, filters), queries.processors_in_use(session, filters)
        return RowPage(job_rows(page, session), older, counts, in_use)

    return await manager.store.read(look)


ORDERS = frozenset(queries.ORDERS)
"""By what such a list can be ordered."""


class RowPage(NamedTuple):
    """Rows of a list, and the `before` of the next page; how many jobs in all it has, by state, and the processors
    that these use."""

    rows: list[JobRow]
    older: int | None
    counts: dict[JobState, int]
    in_use: int


def _may_see(caller: Principal, query: JobFilter) -> None:
    if query.user not in (None, caller.user) and not caller.sees_all:
        raise EjbError(Code.FORBIDDEN, "the jobs of others are for operators to see", where="query.user")


def _listed_of(caller: Principal, query: JobFilter) -> str | None:
    """Jobs of which user are listed; None: all users'."""
    return query.user if caller.sees_all and not query.mine else caller.user


def _page(
    session: Session,
    caller: Principal,
    query: JobFilter,
    options: Sequence[ExecutableOption] = (),
    order: str = "",
    offset: int = 0,
) -> tuple[Sequence[Job], int | None]:
    between = array = None
    if query.array is not None:
        array = queries.resolve_job(session, query.array, caller.user, all_users=caller.sees_all)
    if query.select is not None:
        between = queries.resolve_range(session, query.select, caller.user, all_users=caller.sees_all)
    jobs = queries.list_jobs(
        session,
        **_filters(caller, query),
        order=order,
        offset=offset,
        array=None if array is None else array.id,
        between=between,
        limit=query.limit + 1,
        before_seq=query.before,
        options=options,
    )
    page = jobs[: query.limit]
    return page, page[-1].seq if len(jobs) > len(page) else None


def _filters(caller: Principal, query: JobFilter) -> dict[str, Any]:
    states = set(query.state or JobState)
    if query.alive is not None:
        states &= LIVING_JOB if query.alive else TERMINAL_JOB
    return {
        "user": _listed_of(caller, query),
        "states": states if len(states) < len(JobState) else None,
        "queue": query.queue,
        "name": query.name,
        "name_part": query.name_part,
    }


def _numbered(session: Session, numbers: Sequence[str], user: str | None) -> list[Job]:
    within = select(Job) if user is None else select(Job).where(Job.user == user)
    found = (queries.by_number(session, within, number) for number in numbers)
    return list({job.id: job for job in found if job is not None}.values())


@router.get("/{job}")
async def show(manager: Manager, caller: Caller, job: Selector) -> JobDetail:
    """One job."""
    return await _detail(manager, caller, job)


@router.get("/{job}/explain")
async def explain(manager: Manager, caller: Caller, job: Selector) -> Explanation:
    """Why a job is where it is: every decision with what was seen, weighed and chosen."""
    found = await select_job(manager, caller, job)
    return Explanation.model_validate(await manager.explain(found.id))


@router.post("/{job}/number")
async def number(
    manager: Manager, caller: Caller, job: Selector, wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0
) -> JobDetail:
    """Have a job go by a number: that of its J0 where it comes within `wait_s` seconds, else one of EJB's own."""
    found = await select_job(manager, caller, job)
    await manager.number(found.id, wait_s)
    return await _detail(manager, caller, found.id)


@router.post("/{job}/number/read", status_code=204)
async def number_read(manager: Manager, caller: Caller, job: Selector) -> None:
    """Let a job begin, its number being read. It was submitted as `numbered`, and begins 10 s later otherwise."""
    found = await select_job(manager, caller, job)
    await manager.number_read(found.id)


@router.post("/{job}/cancel")
async def cancel(manager: Manager, caller: Caller, job: SomeSelector) -> JobDetail:
    """End a job; of an array all elements, or those that are named."""
    named = ELEMENTS.fullmatch(job)
    if named is not None:
        array = await select_job(manager, caller, named["array"])
        await manager.cancel_elements(array.id, named["some"] or named["one"], caller.user)
        return await _detail(manager, caller, array.id)
    found = await select_job(manager, caller, job)
    await manager.cancel(found.id, caller.user)
    return await _detail(manager, caller, found.id)


@router.post("/{job}/signal")
async def signal(manager: Manager, caller: Caller, job: Selector, body: SignalRequest) -> JobDetail:
    """Send a signal to what an elastic job runs; an array's to each of its elements."""
    found = await select_job(manager, caller, job)
    await manager.signal(found.id, body.signal, body.to, caller.user)
    return await _detail(manager, caller, found.id)


@router.post("/{job}/evolve")
async def evolve(manager: Manager, caller: Caller, job: Selector, body: EvolveRequest) -> EvolvingCourse:
    """Replace what comes of an evolving job that runs, and say when it has each width."""
    found = await select_job(manager, caller, job)
    return EvolvingCourse.model_validate(await manager.evolve(found.id, body.tail, body.dry_run, caller.user))


@router.post("/{job}/resize")
async def resize(manager: Manager, caller: Caller, job: Selector, body: ResizeRequest) -> EvolvingCourse:
    """Give an evolving job so many places from now to its end, and say when it has them. The same twice is one."""
    found = await select_job(manager, caller, job)
    return EvolvingCourse.model_validate(await manager.resize(found.id, body.to, caller.user, body.by, body.key))


@router.post("/{job}/hold")
async def hold(manager: Manager, caller: Caller, job: Selector) -> JobDetail:
    """Keep a job that has not started from starting."""
    found = await select_job(manager, caller, job)
    await manager.hold(found.id, caller.user)
    return await _detail(manager, caller, found.id)


@router.post("/{job}/release")
async def release(manager: Manager, caller: Caller, job: Selector) -> JobDetail:
    """Let a held job go on."""
    found = await select_job(manager, caller, job)
    await manager.release(found.id, caller.user)
    return await _detail(manager, caller, found.id)


async def _detail(manager: ManagerPort, caller: Principal, selector: str) -> JobDetail:
    def look(session: Session) -> JobDetail:
        return job_detail(job_of(session, caller, selector), session)

    return await manager.store.read(look)
