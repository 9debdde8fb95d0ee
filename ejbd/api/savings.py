"""What elastic jobs were worth, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.models import Api
from ejbd.api.port import ManagerPort
from ejbd.errors import Code, EjbError
from ejbd.manager.telling.others import Others, others
from ejbd.manager.telling.savings import By, Saved, savings, together

MONTH_S = 30 * 86400.0
STATED = ("days", "as_of_s", "away_s", "unknown", "left_out", "unranked", "limits")

router = APIRouter(prefix="/v1", tags=["savings"])
CSV = "text/csv"


class Grouping(StrEnum):
    DAY = "day"
    USER = "user"
    QUEUE = "queue"
    DAY_USER = "day,user"

    @property
    def parts(self) -> tuple[By, ...]:
        return tuple(By(part) for part in self.value.split(","))


class SavingsFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


class SavingsOf(StrEnum):
    ELASTIC = "elastic"
    OTHERS = "others"


class SavingsFilter(Api):
    """Which jobs are counted, by when they ended; without times the last 30 days."""

    since_s: Annotated[float | None, Field(ge=0, le=1e11, allow_inf_nan=False)] = None
    until_s: Annotated[float | None, Field(ge=0, le=1e11, allow_inf_nan=False)] = None
    by: Grouping = Grouping.DAY
    mine: Annotated[bool, Field(description="one's own alone, for operators too")] = False
    format: SavingsFormat = SavingsFormat.JSON
    of: Annotated[SavingsOf, Field(description="which jobs the CSV is of; JSON has both")] = SavingsOf.ELASTIC


class SavingsRow(Api):
    """Elastic jobs that completed, and what J0 was promised. Seconds, and processor-seconds."""

    key: str
    jobs: int
    saved_s: Annotated[float, Field(description="`earlier_s` less `later_s`; negative: worse than nothing")]
    earlier_s: Annotated[float, Field(description="by which jobs ended before J0's promise")]
    later: Annotated[int, Field(description="jobs that ended behind it")]
    later_s: float
    charged_processor_s: float
    alone_processor_s: Annotated[float, Field(description="what the same work comes to at full width")]
    spent_processor_s: Annotated[float, Field(description="what was charged beyond that")]
    uncounted: Annotated[int, Field(description="elastic jobs that did not complete, or were promised nothing")]


class OthersRow(Api):
    """Other jobs that started, by EASY's plan with elastic jobs and without (docs/web.md). Seconds."""

    key: str
    jobs: int
    net_s: Annotated[float, Field(description="`gained_s` less `lost_s`; negative: they lost")]
    gained: Annotated[int, Field(description="jobs that elastic ones let start earlier")]
    gained_s: float
    lost: Annotated[int, Field(description="jobs that elastic ones made start later")]
    lost_s: float
    unsure: Annotated[int, Field(description="jobs that waited for a limit which the replay does not know")]
    error_s: Annotated[float, Field(description="by how much the replay of what came misses real starts, all added up")]
    before_real_s: Annotated[float, Field(description="EASY's starts without elastic jobs, less the real ones")]
    says_something: Annotated[bool, Field(description="whether `net_s` is more than `error_s`, either way")]


class OthersSavings(Api):
    """What other jobs gained and lost by elastic ones, of whole days (UTC)."""

    rows: list[OthersRow]
    total: OthersRow
    days: Annotated[int, Field(description="days that were replayed")]
    as_of_s: Annotated[float | None, Field(description="when the last of them was; null: none was")]
    away_s: Annotated[float, Field(description="of these days, in which no poll looked")]
    unknown: Annotated[int, Field(description="jobs that ended unseen: taken to their walltime")]
    left_out: Annotated[int, Field(description="jobs that cannot be replayed, as arrays that were passed through")]
    unranked: Annotated[int, Field(description="of these days, in which jobs stood in the order of arrival")]
    limits: Annotated[str, Field(description="why limits of accounts were not played; empty: they were")]


class Savings(Api):
    """What elastic jobs were worth that ended in a time, and what other jobs gained or lost by them."""

    since_s: float
    until_s: float
    rows: list[SavingsRow]
    total: SavingsRow
    others: OthersSavings


async def told(manager: ManagerPort, caller: Principal, query: SavingsFilter) -> Savings:
    """Of one's own jobs, for operators of all. Raises EjbError (INVALID) where the time ends before it begins."""
    until_s = time.time() if query.until_s is None else query.until_s
    since_s = until_s - MONTH_S if query.since_s is None else query.since_s
    if since_s > until_s:
        raise EjbError(Code.INVALID, "the time ends before it begins", where="query.since_s")
    user = None if caller.sees_all and not query.mine else caller.user
    by = query.by.parts
    rows = await manager.store.read(lambda s: savings(s, user, since_s, until_s, by))
    beside = await manager.store.read(lambda s: others(s, user, since_s, until_s, by))
    figures = {name: getattr(beside, name) for name in STATED}
    return Savings(
        since_s=since_s,
        until_s=until_s,
        rows=[_row(row) for row in rows],
        total=_row(together(rows)),
        others=OthersSavings(rows=[_other(row) for row in beside.rows], total=_other(beside.total), **figures),
    )


@router.get(
    "/savings",
    response_model=Savings,
    responses={200: {"content": {CSV: {"schema": {"type": "string"}}}, "description": "What jobs were worth"}},
)
async def show(manager: Manager, caller: Caller, query: Annotated[SavingsFilter, Query()]) -> Response:
    """What elastic jobs saved and spent, and what other jobs gained or lost by them, by day, user or queue."""
    found = await told(manager, caller, query)
    if query.format is SavingsFormat.CSV:
        of_others = query.of is SavingsOf.OTHERS
        headers = {"Content-Disposition": f'attachment; filename="ejb-{"others" if of_others else "savings"}.csv"'}
        return Response(
            as_csv(query.by, found.others.rows if of_others else found.rows, of_others), media_type=CSV, headers=headers
        )
    return JSONResponse(found.model_dump(mode="json"))


def as_csv(by: Grouping, rows: Sequence[SavingsRow] | Sequence[OthersRow], of_others: bool = False) -> str:
    """One line a row behind the columns' names. A name that a spreadsheet would compute has a quote before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [part.value for part in by.parts]
    figures = [name for name in (OthersRow if of_others else SavingsRow).model_fields if name != "key"]
    writer.writerow([*names, *figures])
    for row in rows:
        keys = row.key.split(" ", len(names) - 1)
        plain = [f"'{key}" if key.startswith(("=", "+", "-", "@", "\t")) else key for key in keys]
        writer.writerow([*plain, *(round(getattr(row, name), 3) for name in figures)])
    return out.getvalue()


def _other(found: Others) -> OthersRow:
    return OthersRow(**{name: getattr(found, name) for name in OthersRow.model_fields})


def _row(saved: Saved) -> SavingsRow:
    return SavingsRow(**{name: getattr(saved, name) for name in SavingsRow.model_fields})
