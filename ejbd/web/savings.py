"""What elastic jobs were worth, as a page; the CSV is REST's."""

from __future__ import annotations

import time
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ejbd.api import savings
from ejbd.api.auth import Caller, Manager
from ejbd.api.savings import Grouping, SavingsFilter
from ejbd.web.render import html

DAYS = (1, 7, 30, 90, 366)

router = APIRouter(prefix="/web")


@router.get("/savings")
async def shown(
    request: Request,
    manager: Manager,
    caller: Caller,
    by: Grouping = Grouping.DAY,
    days: Annotated[int, Query(ge=1, le=3660)] = 30,
    mine: bool = False,
) -> Response:
    """Hours earlier than J0's promise, and what was spent for them."""
    since_s = float(int(time.time()) - days * 86400)
    found = await savings.told(manager, caller, SavingsFilter(by=by, since_s=since_s, mine=mine))
    words = {"by": by.value, "since_s": f"{since_s:.0f}", "format": "csv"} | ({"mine": "true"} if mine else {})
    csv = f"/v1/savings?{urlencode(words)}"
    return html(
        "savings.html",
        (request, caller),
        found=found,
        csv=csv,
        csv_of_others=f"{csv}&of=others",
        by=by,
        days=days,
        mine=mine,
        groupings=list(Grouping),
        lengths=DAYS,
    )
