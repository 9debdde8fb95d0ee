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
from ejbd.manager.telling.savings import By, Saved, savings, together

MONTH_S = 30 * 86400.0

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


class SavingsFilter(Api):
    """Which jobs are counted, by when they ended; without times the last 30 days."""

    since_s: Annotated[float | None, Field(ge=0, le=1e11, allow_inf_nan=False)] = None
    until_s: Annotated[float | None, Field(ge=0, le=1e11, allow_inf_nan=False)] = None
    by: Grouping = Grouping.DAY
    mine: Annotated[bool, Field(description="one's own alone, for operators too")] = False
    format: SavingsFormat = SavingsFormat.JSON


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


class Savings(Api):
    """What elastic jobs were worth that ended in a time."""

    since_s: float
    until_s: float
    rows: list[SavingsRow]
    total: SavingsRow


async def told(manager: ManagerPort, caller: Principal, query: SavingsFilter) -> Savings:
    """Of one's own jobs, for operators of all. Raises EjbError (INVALID) where the time ends before it begins."""
    until_s = time.time() if query.until_s is None else query.until_s
    since_s = until_s - MONTH_S if query.since_s is None else query.since_s
    if since_s > until_s:
        raise EjbError(Code.INVALID, "the time ends before it begins", where="query.since_s")
    user = None if caller.sees_all and not query.mine else caller.user
    rows = await manager.store.read(lambda s: savings(s, user, since_s, until_s, query.by.parts))
    return Savings(since_s=since_s, until_s=until_s, rows=[_row(row) for row in rows], total=_row(together(rows)))


@router.get(
    "/savings",
    response_model=Savings,
    responses={200: {"content": {CSV: {"schema": {"type": "string"}}}, "description": "What jobs were worth"}},
)
async def show(manager: Manager, caller: Caller, query: Annotated[SavingsFilter, Query()]) -> Response:
    """Hours by which jobs ended earlier than J0's promise, and what was spent for it, by day, user or queue."""
    found = await told(manager, caller, query)
    if query.format is SavingsFormat.CSV:
        headers = {"Content-Disposition": 'attachment; filename="ejb-savings.csv"'}
        return Response(as_csv(query.by, found.rows), media_type=CSV, headers=headers)
    return JSONResponse(found.model_dump(mode="json"))


def as_csv(by: Grouping, rows: Sequence[SavingsRow]) -> str:
    """One line a row behind the columns' names. A name that a spreadsheet would compute has a quote before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [part.value for part in by.parts]
    figures = [name for name in SavingsRow.model_fields if name != "key"]
    writer.writerow([*names, *figures])
    for row in rows:
        keys = row.key.split(" ", len(names) - 1)
        plain = [f"'{key}" if key.startswith(("=", "+", "-", "@", "\t")) else key for key in keys]
        writer.writerow([*plain, *(round(getattr(row, name), 3) for name in figures)])
    return out.getvalue()


def _row(saved: Saved) -> SavingsRow:
    return SavingsRow(**{name: getattr(saved, name) for name in SavingsRow.model_fields})
