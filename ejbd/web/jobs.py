"""The list of jobs, with filters that stand in the address, and a job's own page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from starlette.responses import Response

from ejbd.api import jobs, timelines
from ejbd.api.auth import Caller, Manager
from ejbd.api.events import newest_events
from ejbd.api.gantt import svg
from ejbd.api.models import JobDetail
from ejbd.api.models.plans import PlannedView
from ejbd.api.selecting import Selector
from ejbd.api.views import JobRow
from ejbd.core.progress import degree
from ejbd.web.render import ENVIRONMENT, html, share
from ejbd.web.shared import Shared
from ejbd.wire.states import JobState

SHOWN = 100
EVENTS = 200
SHOWN_ROWS = 20  # of moves and of batch jobs; the earlier ones are behind a summary
KEPT_ROWS = 8192

router = APIRouter(prefix="/web/jobs")


@dataclass(frozen=True, slots=True)
class Filters:
    """What the address says, as the form shows it again."""

    which: str
    queue: str
    name: str
    user: str
    mine: bool
    limit: int
    sort: str

    def address(self, **more: object) -> str:
        """The same list, from another job on, or in another order."""
        asked = {"which": self.which, "queue": self.queue, "name": self.name, "user": self.user, "sort": self.sort}
        words = {key: value for key, value in {**asked, **more}.items() if value}
        words |= {"mine": "true"} if self.mine else {}
        words |= {"limit": str(self.limit)} if self.limit != SHOWN else {}
        return "/web/jobs" + (f"?{urlencode(words)}" if words else "")

    def by(self, key: str) -> str:
        """The same list in the order of a column; once more: the other way round."""
        return self.address(sort=f"-{key}" if self.sort == key else key)

    def direction(self, key: str) -> str:
        """Which way the list goes by that column, in the words of `aria-sort`."""
        return {key: "ascending", f"-{key}": "descending"}.get(self.sort, "none")


@dataclass(frozen=True, slots=True)
class Row:
    """What the list shows of a job. `user` None: it is one's own, as all others. `end_s`: it ended, or is to end."""

    id: str
    name: str
    user: str | None
    queue: str
    state: JobState
    held: bool
    processors: int
    processes: int
    done: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    number: str | None
    reason: str
    planned_s: float | None
    final_state: JobState | None

    @classmethod
    def of(cls, job: JobRow, sees_all: bool) -> Row:
        return cls(
            id=job.id,
            name=job.name,
            user=job.user if sees_all else None,
            queue=job.queue,
            state=job.state,
            held=job.held,
            processors=job.processors,
            processes=job.processes,
            done=share(job.progress),
            submit_s=job.submit_s,
            start_s=job.start_s,
            end_s=job.end_s,
            number=job.number,
            reason=describe_waiting(job),
            planned_s=job.planned_s if job.state in _WAITS else None,
            final_state=job.final_state,
        )


_WAITS = (JobState.RECEIVED, JobState.WAITING)
MOST_OF_A_REASON = 120


def describe_waiting(job: JobRow) -> str:
    """Why a job does not run, or ended otherwise than well; "" where there is nothing to say."""
    if job.held and job.state in _WAITS:
        return "held by its user"
    reason = job.reason.partition("\n")[0]
    reason = reason if len(reason) <= MOST_OF_A_REASON else reason[: MOST_OF_A_REASON - 1] + "…"
    return reason or ("waits for processors" if job.state in _WAITS and job.planned_s is None else "")


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of a list, the address of what follows, and what the whole of the list comes to."""

    rows: Markup
    older: str | None
    total: int
    running: int
    waiting: int
    in_use: int


@lru_cache(KEPT_ROWS)
def _row(row: Row) -> Markup:
    """Kept: from look to look most jobs are as they were, and a row takes a hundred times as long as its look-up."""
    return Markup(ENVIRONMENT.get_template("jobrow.html").render(job=row))


Text = Annotated[str, Query(max_length=256)]


@router.get("")
async def listed(
    request: Request,
    manager: Manager,
    caller: Caller,
    which: Text = "",
    queue: Text = "",
    name: Text = "",
    user: Text = "",
    mine: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = SHOWN,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    sort: Text = "",
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> Response:
    """Jobs, newest first, or by the column `sort`. `which` is a state, `living` or `ended`; `name` a part of names."""
    sort = sort if sort.removeprefix("-") in jobs.ORDERS else ""
    filters = Filters(which, queue, name, user, mine, limit, sort)
    query = jobs.JobFilter(
        state=tuple(state for state in JobState if state.value == which),
        alive={"living": True, "ended": False}.get(which),
        queue=queue or None,
        name_part=name or None,
        user=user or None,
        mine=mine,
        limit=limit,
        before=None if sort else before,
    )

    async def look() -> Listed:
        page = await jobs.list_rows(manager, caller, query, sort, offset if sort else 0)
        rows = Markup("").join([_row(Row.of(job, caller.sees_all)) for job in page.rows])
        more = {"offset": offset + limit} if sort else {"before": page.older}
        counts = page.counts
        return Listed(
            rows,
            None if page.older is None else filters.address(**more),
            total=sum(counts.values()),
            running=sum(counts.get(state, 0) for state in (JobState.RUNNING, JobState.ENDING)),
            waiting=sum(counts.get(state, 0) for state in _WAITS),
            in_use=page.in_use,
        )

    lists: Shared[Listed] = request.app.state.lists
    found = await lists.get((caller.sees_all, caller.user, filters, before, offset), look)
    states = ["living", "ended", *JobState]
    return html("jobs.html", (request, caller), found=found, filters=filters, states=states)


@router.get("/{job}")
async def shown(request: Request, manager: Manager, caller: Caller, job: Selector) -> Response:
    """One job: plan and past, explained in words, its moves, its events."""
    detail = await jobs.show(manager, caller, job)
    explained = await jobs.explain(manager, caller, detail.id)
    line = await timelines.told(manager, caller, detail.id)
    moves = await timelines.moves(manager, caller, detail.id)
    events, count = await newest_events(manager, detail.id, EVENTS)
    return html(
        "job.html",
        (request, caller),
        job=detail,
        explained=explained,
        picture=svg(line),
        done_s=line.expected_end_s,
        moves=moves.moves,
        events=events,
        count=count,
        commands=commands(detail),
        over=detail.state.over,
        degree=degree,
        shown=SHOWN_ROWS,
        stretches=describe_stretches(explained.planned, begun=detail.state is JobState.RUNNING),
    )


def describe_stretches(planned: Sequence[PlannedView], *, begun: bool) -> list[str]:
    """What each stretch of a plan is, in a word. `begun`: ranks run as it begins. Else its first move is a start."""
    words, before = [], "run" if begun else "wait"
    for one in planned:
        starts = one.kind.value == "move" and before in ("wait", "suspended")
        words.append("start" if starts else one.kind.value.replace("_", " "))
        before = one.kind.value
    return words


def commands(job: JobDetail) -> list[str]:
    """The commands of `ejb` that show and do the same, to be copied."""
    words = ["status", "explain", "timeline", "logs -f", "events"]
    if not job.state.over:
        words += ["wait", "release" if job.held else "hold", "cancel"]
    return [f"ejb {word} {job.id}" for word in words]
