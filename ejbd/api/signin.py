"""Links that sign a browser in: made over the unix socket, good once and for a short while.

They are kept in memory by their digests: a daemon that is started anew knows none, and its users ask for another.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from ejbd.api.auth import Caller, digest
from ejbd.api.models import Api
from ejbd.errors import Code, EjbError
from ejbd.wire.rights import Proof, Scope

GOOD_S = 120.0
MOST = 1000
MOST_OF_ONE = 20  # so that one user, or one script, takes no link from any other
SIGN_IN = "/web/in"

router = APIRouter(prefix="/v1/web", tags=["web"])


@dataclass(frozen=True, slots=True)
class SignedFor:
    """The user that a link is for, how far its browser may go, and until when it is good (monotonic seconds)."""

    user: str
    scope: Scope
    until_s: float


class Links:
    """Those that were not used yet, by the digests of their keys."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, SignedFor] = {}

    def new(self, user: str, scope: Scope) -> str:
        """A key that opens the page once. Raises EjbError (TOO_MANY) while too many are open.

        Of one user's own the oldest is worthless once there are more than MOST_OF_ONE.
        """
        now = self._clock()
        self._open = {key: one for key, one in self._open.items() if one.until_s > now}
        own = [known for known, one in self._open.items() if one.user == user]
        for oldest in own[: max(0, len(own) - MOST_OF_ONE + 1)]:
            del self._open[oldest]
        if len(self._open) >= MOST:
            raise EjbError(Code.TOO_MANY, f"{MOST} links wait to be used", transient=True, hint="try again in a minute")
        key = secrets.token_urlsafe(32)
        self._open[digest(key)] = SignedFor(user, scope, now + GOOD_S)
        return key

    def take(self, key: str) -> SignedFor:
        """What a key is for; it is worthless from now on. Raises EjbError (UNAUTHENTICATED)."""
        found = self._open.pop(digest(key), None)
        if found is None or found.until_s <= self._clock():
            hint = "`ejb web` makes another one"
            raise EjbError(Code.UNAUTHENTICATED, "this link was used already, or has run out", hint=hint)
        return found


class LinkRequest(Api):
    """How far the browser may go: no farther than its user."""

    scope: Annotated[Scope, Field(description="the narrower of this and the user's role holds")] = Scope.ADMIN


class SignInLink(Api):
    """A link that signs a browser in. `url` null: the daemon does not know its address yet."""

    url: str | None
    path: Annotated[str, Field(description="the same behind the daemon's address, as for a tunnel")]
    good_s: float


@router.post("", status_code=201)
async def link(request: Request, caller: Caller, body: LinkRequest) -> SignInLink:
    """A link for oneself, asked for over the unix socket. It is good once, and for two minutes."""
    if caller.proof is not Proof.PEER:
        hint = "run `ejb web` on the daemon's machine, without EJB_TOKEN"
        raise EjbError(Code.FORBIDDEN, "links are made over the unix socket, where the peer is known", hint=hint)
    links: Links = request.app.state.links
    path = f"{SIGN_IN}?key={links.new(caller.user, body.scope.within(caller.scope))}"
    base: str | None = getattr(request.app.state, "page_url", None)
    return SignInLink(url=None if base is None else base + path, path=path, good_s=GOOD_S)
