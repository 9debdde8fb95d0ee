"""The first page: nodes over time, past and ahead, and what could be used now."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ejbd.api import cluster, queues
from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.cluster import BarView, ClusterPicture
from ejbd.api.models import Window
from ejbd.api.port import ManagerPort
from ejbd.api.queues import WindowFilter
from ejbd.web.gantt import CLASSES, TOP, Nodes, Span, gantt
from ejbd.web.render import html
from ejbd.web.shared import Shared
from ejbd.web.strips import strips

BACK, AHEAD = 1.0, 6.0  # hours
LENGTHS = ((0.25, 1.0), (1.0, 6.0), (3.0, 24.0), (12.0, 72.0), (24.0, 168.0))
LISTED = 100  # bars in words
LEGEND = dict(
    zip(
        (*CLASSES, "window", "ahead"),
        (
            *(
                "your elastic jobs",
                "elastic jobs",
                "other jobs",
                "J0 planned (an elastic job as submitted)",
                "other jobs planned",
            ),
            *("reservations, maintenance", "windows open now", "free ahead, by the plan"),
        ),
        strict=True,
    )
)

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the address asks for: hours around now, the first and last node (0 and 0: all), by how much it is moved."""

    back: float
    ahead: float
    shift: float
    first: int
    last: int

    def address(self, **more: object) -> str:
        """This picture with something else."""
        said = {"back": self.back, "ahead": self.ahead, "shift": self.shift, "first": self.first, "last": self.last}
        said |= more  # type: ignore[arg-type]
        usual = {"back": BACK, "ahead": AHEAD, "shift": 0.0, "first": 0, "last": 0}
        words = {key: f"{value:g}" for key, value in said.items() if value != usual[key]}
        return "/" + (f"?{urlencode(words)}" if words else "")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture, and what is said beside it."""

    at_s: float
    svg: str
    shown: tuple[BarView, ...]
    processors: int
    free: int
    nodes: int
    left_out: int
    windows: tuple[Window, ...]


async def _draw(manager: ManagerPort, caller: Principal, wanted: Wanted) -> Drawn:
    now = time.time()
    span = Span(now + (wanted.shift - wanted.back) * 3600, now + (wanted.shift + wanted.ahead) * 3600, now)
    picture = await cluster.told(manager, caller, min(span.start_s, now))
    windows = await queues.windows(manager, caller, WindowFilter())
    return await asyncio.to_thread(drawn, picture, tuple(windows.windows), wanted, span)


def drawn(picture: ClusterPicture, windows: tuple[Window, ...], wanted: Wanted, span: Span) -> Drawn:
    """The picture of what is there in a time."""
    nodes = Nodes.of(picture)
    last = min(wanted.last or len(nodes.names), len(nodes.names))
    first = min(wanted.first, max(0, last - 1))
    above = strips(picture, windows, span, TOP)
    svg = gantt(picture, nodes, nodes.lanes(first, last), span, _zoom(wanted), (above.svg, above.high))
    named = [bar for bar in picture.bars if bar.job and (bar.end_s is None or bar.end_s > span.start_s)]
    named.sort(key=lambda bar: (not bar.mine, bar.start_s))
    return Drawn(
        at_s=picture.at_s,
        svg=svg,
        shown=tuple(named[:LISTED]),
        processors=picture.processors,
        free=picture.free,
        nodes=len(nodes.names),
        left_out=above.left_out,
        windows=windows,
    )


def _zoom(wanted: Wanted) -> str:
    """An address with places for the nodes of a group."""
    here = wanted.address(first=0, last=0)
    return f"{here}{'&' if '?' in here else '?'}first={{first}}&last={{last}}"


Hours = Annotated[float, Query(gt=0, le=24 * 31, allow_inf_nan=False)]
Place = Annotated[int, Query(ge=0, le=10**6)]


@router.get("/")
async def shown(
    request: Request,
    manager: Manager,
    caller: Caller,
    back: Hours = BACK,
    ahead: Hours = AHEAD,
    shift: Annotated[float, Query(ge=-24 * 31, le=24 * 31, allow_inf_nan=False)] = 0.0,
    first: Place = 0,
    last: Place = 0,
) -> Response:
    """The cluster over time."""
    wanted = Wanted(back, ahead, shift, first, last)
    pictures: Shared[Drawn] = request.app.state.pictures
    key = (caller.sees_all, caller.user, wanted)
    found = await pictures.get(key, lambda: _draw(manager, caller, wanted))
    step = (back + ahead) / 2
    lengths = [(f"{b + a:g} h", wanted.address(back=b, ahead=a), (b, a) == (back, ahead)) for b, a in LENGTHS]
    around = {
        "earlier": wanted.address(shift=shift - step),
        "later": wanted.address(shift=shift + step),
        "now": wanted.address(shift=0.0) if shift else None,
        "all nodes": wanted.address(first=0, last=0) if first or last else None,
    }
    return html(
        "cluster.html",
        (request, caller),
        found=found,
        lengths=lengths,
        around={word: address for word, address in around.items() if address is not None},
        legend=LEGEND,
    )
