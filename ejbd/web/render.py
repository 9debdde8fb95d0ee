"""From typed values to HTML: the templates, and how times and lengths are written in them."""

from __future__ import annotations

import gzip
import math
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from ejbd import __version__
from ejbd.api.access.cookies import cookie_of, form_mark
from ejbd.api.auth import Principal
from ejbd.web.gantt import about
from ejbd.wire.rights import Scope
from ejbd.wire.visible import visible

LARGE = 4096  # bytes, above which a part of a page is packed


def moment(at_s: float | None) -> Markup:
    """A time: UTC in the page, which its script turns into the reader's zone."""
    if at_s is None or not math.isfinite(at_s):
        return Markup("–")
    at = datetime.fromtimestamp(at_s, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def duration(seconds: float | None) -> str:
    """`2 d 3 h`, `5 min 20 s`: the two largest units."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    sign, left = ("−" if seconds < 0 else ""), round(abs(seconds))
    if left < 60:
        return f"{sign}{abs(seconds):.3g} s"
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count} {unit}")
    return sign + " ".join(part for part in parts[:2] if not part.startswith("0 "))


def figure(value: float | None) -> str:
    """A number with its thousands apart."""
    return "–" if value is None else f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def hours(value: float) -> str:
    """Hours in a table: to a hundredth, and none that is less."""
    return figure(value) if abs(value) >= 100 else f"{value:.2f}".replace("-0.00", "0.00")


def share(value: float) -> str:
    return f"{value:.0%}"


def shown(value: Any) -> Any:
    """What a template puts into a page: text, none of which is invisible or turns what stands beside it."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def as_is(value: str) -> Markup:
    """For what a form sends back: what its user has typed."""
    return escape(value)


ENVIRONMENT = Environment(
    loader=PackageLoader("ejbd.web"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {
    "moment": moment,
    "duration": duration,
    "figure": figure,
    "hours": hours,
    "share": share,
    "about": about,
    "as_is": as_is,
}
ENVIRONMENT.globals |= {"version": __version__, "caller": None}


def _made(folder: Path) -> str:
    """A digest of what the page is made of: templates, styles and script. An upgrade may change it."""
    found = blake2b(__version__.encode(), digest_size=6)
    for path in sorted(one for one in folder.rglob("*") if one.suffix in (".html", ".js", ".css")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


ENVIRONMENT.globals["made"] = MADE = _made(Path(__file__).parent)
MADE_BY = "X-EJB-Made"
"""Of what daemon a part of a page is: one that was left open over an upgrade has another script and other styles."""

HAVE, IS = "X-EJB-Have", "X-EJB-Is"
"""What the page has of itself already, and what it is sent: by a digest. The page's script sends it back."""


def html(template: str, asked: tuple[Request, Principal] | None, status: int = 200, **values: Any) -> Response:
    """A page; `asked`: the request and its user, of a page that is for a user.

    A page that looks anew gets what stands in it alone, and nothing where that is as it was.
    """
    part = asked is not None and asked[0].headers.get("HX-Request") == "true"
    if asked is not None:
        request, caller = asked
        mark = form_mark(cookie_of(request) or "")
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        steers = caller.scope.covers(Scope.SUBMIT)
        values |= {"caller": caller, "mark": mark, "here": here, "steers": steers}
    layout = "part.html" if part else "base.html"
    text = ENVIRONMENT.get_template(template).render(layout=layout, **values)
    if asked is None or not part:
        return HTMLResponse(text, status)
    # Together with a mark nothing is packed: how long it is then would tell of the mark.
    return _part(asked[0], text.encode(), packs=mark not in text)


def _part(request: Request, text: bytes, packs: bool) -> Response:
    digest = blake2b(text, digest_size=12).hexdigest()
    if request.headers.get(HAVE) == digest:
        return Response(status_code=204, headers={IS: digest, MADE_BY: MADE})
    headers = {IS: digest, MADE_BY: MADE}
    if packs and len(text) > LARGE and "gzip" in request.headers.get("Accept-Encoding", ""):
        text = _packed(text)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return HTMLResponse(text, headers=headers)


@lru_cache(8)
def _packed(text: bytes) -> bytes:
    """Kept: what many look at is packed once."""
    return gzip.compress(text, 1, mtime=0)
