"""Signing in by a link of `ejb web`, and signing out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from ejbd.api.access.cookies import SIGNED_IN_S, drop_cookie, set_cookie
from ejbd.api.auth import ID_LENGTH, Caller, Manager
from ejbd.api.models import TokenRequest
from ejbd.api.signin import SIGN_IN, Links
from ejbd.api.tokens import minted, revoke
from ejbd.web.forms import Form
from ejbd.web.render import html

LABEL = "web page"

router = APIRouter()


@router.get(SIGN_IN)
async def enter(request: Request, manager: Manager, key: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Take a link, and have the browser be its user for twelve hours."""
    if not key:
        return html("signin.html", None, problem={"detail": "", "hint": ""})
    links: Links = request.app.state.links
    found = links.take(key)
    wanted = TokenRequest(label=LABEL, expires_in_s=SIGNED_IN_S, scope=found.scope)
    token, _ = await minted(manager, found.user, wanted)
    # A page that leads on, not a redirect: a cookie that is SameSite=Strict is not sent on a redirect that begins
    # in another program's window.
    answer = html("entered.html", None, user=found.user)
    set_cookie(request, answer, token)
    return answer


@router.post("/web/out")
async def leave(request: Request, manager: Manager, caller: Caller, form: Form) -> Response:
    """Make the browser's token worthless."""
    await revoke(request, manager, caller, (caller.token or "")[:ID_LENGTH])
    answer = RedirectResponse("/", 303)
    drop_cookie(request, answer)
    return answer
