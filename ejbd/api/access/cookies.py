"""The cookie of a browser that has signed in, and what keeps other pages from using it.

The cookie holds a secret of EJB's own: it is listed, revoked and run out as any token, and is no bearer token. It is
good at the door at which it was set. With it everything can be looked at that its user may see; changes are made by the
page's own forms alone, which carry :func:`form_mark`.
"""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import Request
from starlette.responses import Response

from ejbd.api.access.needs import PAGES
from ejbd.errors import Code, EjbError

BACK = "/web/oidc/back"
SIGNED_IN_S = 12 * 3600.0
_LOOKS = frozenset({"GET", "HEAD"})


def cookie_name(request: Request) -> str:
    """With the port in it: browsers share cookies between all ports of one name, as of two tunnels on localhost."""
    return f"{_prefix(request)}ejb_session_{request.url.port or 0}"


def _prefix(request: Request) -> str:
    """By which a browser takes a cookie of the very name over https alone; below a proxy's path it can be no other."""
    if request.url.scheme != "https":
        return ""
    return "__Secure-" if "x-forwarded-prefix" in request.headers else "__Host-"


def page_secret(request: Request, secret: str) -> str:
    """What is kept a digest of, so that a cookie's secret is worth nothing as a token, nor at another door."""
    return f"page {'encrypted' if is_encrypted(request) else 'plain'} {secret}"


def is_encrypted(request: Request) -> bool:
    """Whether the connection itself is, whatever its headers say."""
    connection = getattr(request.state, "connection", None)
    return request.url.scheme == "https" if connection is None else bool(connection.encrypted)


def cookie_of(request: Request) -> str | None:
    """The token in the cookie; None without one."""
    return request.cookies.get(cookie_name(request)) or None


def away_name(request: Request) -> str:
    """The cookie of a browser that is at the identity provider."""
    return f"ejb_away_{request.url.port or 0}"


def set_away(request: Request, response: Response, secret: str, good_s: float) -> None:
    """Sent with the page that the provider leads back to, and with nothing else.

    Lax: the way back begins on the provider's site, and a strict cookie would stay at home.
    """
    secure = request.url.scheme == "https"
    options = {"path": BACK, "httponly": True, "secure": secure}
    response.set_cookie(away_name(request), secret, max_age=int(good_s), samesite="lax", **options)  # type: ignore[arg-type]


def drop_away(request: Request, response: Response) -> None:
    """The browser is back."""
    response.delete_cookie(away_name(request), path=BACK, httponly=True, samesite="lax")


def set_cookie(request: Request, response: Response, token: str) -> None:
    """Out of reach of scripts, and sent by pages of this site alone."""
    options = {"path": "/", "httponly": True, "secure": request.url.scheme == "https"}
    response.set_cookie(cookie_name(request), token, max_age=int(SIGNED_IN_S), samesite="strict", **options)  # type: ignore[arg-type]


def drop_cookie(request: Request, response: Response) -> None:
    """The browser forgets it."""
    secure = request.url.scheme == "https"
    response.delete_cookie(cookie_name(request), path="/", secure=secure, httponly=True, samesite="strict")


def form_mark(token: str) -> str:
    """What a form carries: a page that cannot read the cookie cannot know it."""
    return hashlib.sha256(b"ejb form\0" + token.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def refuse_beyond_forms(request: Request) -> None:
    """Raise EjbError (FORBIDDEN) where a cookie is sent with a change that none of the page's own forms makes.

    The form's mark is looked at where its body is read (:mod:`ejbd.web.forms`).
    """
    if request.method in _LOOKS:
        return
    site = request.headers.get("sec-fetch-site", "same-origin")
    if not request.url.path.startswith(PAGES) or site not in ("same-origin", "none"):
        hint = "scripts use a token: `ejb token create`"
        raise EjbError(Code.FORBIDDEN, "a browser that has signed in changes things by the page's forms", hint=hint)


def is_form_mark(token: str | None, shown: str) -> bool:
    """Whether a form was made for this cookie."""
    return token is not None and hmac.compare_digest(form_mark(token).encode(), shown.encode())
