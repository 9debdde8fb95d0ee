"""The user that asks: the peer of a unix socket, or the holder of a bearer token."""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from ejbd.api.port import ManagerPort
from ejbd.api.shares import ADMINISTRATORS
from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.store.models import Token

TOKEN_PREFIX = "ejb_"
HOLDERS_KEPT = 1000
_ONLY_LOOKED_AT = frozenset({"/v1/jobs/plan", "/v1/workflows/check"})  # posted, but nothing is kept
_BEARER = HTTPBearer(
    auto_error=False, description="a token of POST /v1/tokens; not needed over the unix socket, where the peer is known"
)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a unix socket, as the kernel shows it."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Principal:
    """The user that asks, and whether they may see and change all users' jobs. `token`: the digest of what they showed.
    `scope`: what it is good for ("": everything that the user may do).
    """

    user: str
    admin: bool
    token: str | None = None
    scope: str = ""

    def require_admin(self) -> None:
        """Raise EjbError (FORBIDDEN) for all others."""
        if not self.admin:
            raise EjbError(
                Code.FORBIDDEN, f"{self.user} is not an administrator of EJB", hint="see `admins` in the configuration"
            )


async def manager_of(request: Request) -> ManagerPort:
    """Not a plain function: FastAPI would run that in a thread, for every request."""
    manager: ManagerPort = request.app.state.manager
    return manager


Manager = Annotated[ManagerPort, Depends(manager_of)]


def user_name(uid: int) -> str:
    """The name of a user id; the number itself where the system knows no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token() -> str:
    """A token that cannot be guessed (256 bits)."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def bearer(request: Request) -> str | None:
    """The request's bearer token; None if it carries no Authorization at all."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise EjbError(Code.UNAUTHENTICATED, "the Authorization header holds no bearer token")
    return token.strip()


async def principal_of(request: Request, declared: Annotated[object, Depends(_BEARER)] = None) -> Principal:
    """Raises EjbError (UNAUTHENTICATED) for a token that is unknown or has run out, and for no user at all.

    A token goes before the unix socket's peer: a client that shows one means to be its user.
    """
    found: Principal | None = getattr(request.state, "principal", None)  # asked before, by the guard at the door
    if found is None:
        found = request.state.principal = await _principal(request, request.app.state.manager)
    if (connection := getattr(request.state, "connection", None)) is not None:
        connection.is_of(ADMINISTRATORS if found.admin else f"user {found.user}")
    return found


async def _principal(request: Request, manager: ManagerPort) -> Principal:
    token = bearer(request)
    if token is not None:
        looks = request.method in ("GET", "HEAD") or request.url.path in _ONLY_LOOKED_AT
        return await _token_holder(request.app.state.holders, manager, token, looks=looks)
    peer: Peer | None = getattr(request.state, "peer", None)
    if peer is None:
        hint = "use the unix socket, or a token made by `ejb token create`"
        raise EjbError(Code.UNAUTHENTICATED, "this request does not say which user sends it", hint=hint)
    user = user_name(peer.uid)
    return Principal(user, peer.uid in (0, os.geteuid()) or user in manager.settings.admins)


Caller = Annotated[Principal, Depends(principal_of)]


class Holders:
    """The users of the tokens that were shown of late: not every request has to ask the database.

    Only this process makes and revokes tokens, and :meth:`forget` is called with each that is revoked.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float | None, str]] = {}
        self._forgotten = 0

    async def holder(self, manager: ManagerPort, wanted: str) -> tuple[str, float | None, str] | None:
        """The user, the end (epoch seconds) and the scope of a token by its digest, None of one that does not exist."""

        def look(session: Session) -> Row[str, float | None, str] | None:
            return session.execute(
                select(Token.user, Token.expires_s, Token.scope).where(Token.digest == wanted)
            ).first()

        known = self._known.get(wanted)
        if known is None:
            forgotten = self._forgotten
            found = await manager.store.read(look)
            if found is None:
                return None
            known = (found.user, found.expires_s, found.scope)
            if forgotten == self._forgotten:  # else it may have been revoked since it was read
                if len(self._known) >= HOLDERS_KEPT:
                    self._known.clear()
                self._known[wanted] = known
        return known

    def forget(self) -> None:
        """After a token was revoked."""
        self._forgotten += 1
        self._known.clear()


async def still_holds(holders: Holders, manager: ManagerPort, caller: Principal) -> bool:
    """Whether the token that a request came with is still good: streams outlast many a token."""
    if caller.token is None:
        return True
    found = await holders.holder(manager, caller.token)
    return found is not None and not _has_ended(found[1])


def _has_ended(expires_s: float | None) -> bool:
    return expires_s is None or expires_s <= time.time()  # all of them end


async def _token_holder(holders: Holders, manager: ManagerPort, token: str, *, looks: bool) -> Principal:
    found = await holders.holder(manager, digest(token))
    if found is None:
        raise EjbError(Code.UNAUTHENTICATED, "this token is not known", hint="make one by `ejb token create`")
    user, expires_s, scope = found
    if _has_ended(expires_s):
        raise EjbError(Code.UNAUTHENTICATED, "this token has run out", hint="make one by `ejb token create`")
    if scope == "read" and not looks:
        hint = "make one by `ejb token create --scope jobs`"
        raise EjbError(Code.FORBIDDEN, "this token is for looking only", hint=hint)
    return Principal(user, scope == "admin" and is_admin(user, manager.settings), digest(token), scope)


def is_admin(user: str, settings: Settings) -> bool:
    """Whether a user (known by name) sees all users' jobs."""
    return user in (user_name(0), user_name(os.geteuid())) or user in settings.admins
