"""Signing in by a link of `ejb web` or by the site's identity provider, and signing out."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from ejbd.api.access import oidcflow
from ejbd.api.access.cookies import (
    BACK,
    SIGNED_IN_S,
    away_name,
    drop_away,
    drop_cookie,
    page_secret,
    set_away,
    set_cookie,
)
from ejbd.api.auth import ID_LENGTH, Caller, Manager, is_loopback, ordinary
from ejbd.api.models import TokenRequest
from ejbd.api.signin import SIGN_IN, Links
from ejbd.api.tokens import minted, revoke
from ejbd.errors import Code, EjbError
from ejbd.web.forms import Form
from ejbd.web.render import html

LABEL = "web page"

router = APIRouter()


@router.get(SIGN_IN)
async def enter(request: Request, manager: Manager, key: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Take a link, and have the browser be its user for twelve hours."""
    if not key:
        by_provider = request.app.state.sign_ins is not None
        return html("signin.html", None, problem={"detail": "", "hint": ""}, by_provider=by_provider)
    links: Links = request.app.state.links
    found = links.take(key)
    wanted = TokenRequest(label=LABEL, expires_in_s=SIGNED_IN_S, scope=found.scope)
    token, _ = await minted(manager, found.user, wanted, partial(page_secret, request))
    # A page that leads on, not a redirect: a cookie that is SameSite=Strict is not sent on a redirect that begins
    # in another program's window.
    answer = html("entered.html", None, user=found.user)
    set_cookie(request, answer, token)
    return answer


@router.get("/web/oidc")
async def away(request: Request, manager: Manager) -> Response:
    """Send the browser to the site's identity provider."""
    address, secret = await _sign_ins(request).begin(_base(request, manager) + BACK)
    # Not 303 from a form: the page's policy lets forms lead to its own addresses alone.
    answer = RedirectResponse(address, 302)
    set_away(request, answer, secret, oidcflow.GOOD_S)
    return answer


@router.get(BACK)
async def back(
    request: Request,
    manager: Manager,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4096)] = "",
    error: Annotated[str, Query(max_length=200)] = "",
    iss: Annotated[str, Query(max_length=2000)] = "",
) -> Response:
    """Take what the provider says, and have the browser be its user for twelve hours."""
    if error or not code:
        message = f"the identity provider has not signed this browser in: {error or 'it gives no code'!a}"
        raise EjbError(Code.UNAUTHENTICATED, message, hint="begin anew, or use a link of `ejb web`")
    sign_ins = _sign_ins(request)
    sign_ins.check_issuer(iss)
    kept = request.cookies.get(away_name(request))
    claimed = await sign_ins.end(state, kept, code, _base(request, manager) + BACK)
    await ordinary(request.app.state.roles, claimed.user)
    wanted = TokenRequest(label=LABEL, expires_in_s=SIGNED_IN_S, scope=claimed.scope)
    token, _ = await minted(manager, claimed.user, wanted, partial(page_secret, request))
    answer = html("entered.html", None, user=claimed.user)  # a page, as above
    set_cookie(request, answer, token)
    drop_away(request, answer)
    return answer


def _sign_ins(request: Request) -> oidcflow.SignIns:
    found: oidcflow.SignIns | None = request.app.state.sign_ins
    if found is None:
        hint = "use a link of `ejb web`; `client_id` of [oidc] sets it up"
        raise EjbError(Code.NOT_FOUND, "no identity provider signs browsers in here", hint=hint)
    return found


def _base(request: Request, manager: Manager) -> str:
    """The page's address: what the request calls it is taken on this machine alone, since a browser chooses it."""
    settings = manager.settings.oidc
    if settings is not None and settings.page_url is not None:
        return settings.page_url.rstrip("/")
    if is_loopback(request.url.hostname or ""):
        return f"{request.url.scheme}://{request.url.netloc}"
    return str(request.app.state.page_url)


@router.post("/web/out")
async def leave(request: Request, manager: Manager, caller: Caller, form: Form) -> Response:
    """Make the browser's token worthless."""
    await revoke(request, manager, caller, (caller.token or "")[:ID_LENGTH])
    answer = RedirectResponse("/", 303)
    drop_cookie(request, answer)
    return answer
