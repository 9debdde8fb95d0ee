"""Who is asking: the user behind a unix socket, or the holder of a bearer token."""

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
from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.store.models import Token

TOKEN_PREFIX = "ejb_"
_BEARER = HTTPBearer(
    auto_error=False, description="a token of POST /v1/tokens; not needed over the unix socket, whose peer is known"
)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a unix socket, as the kernel tells it."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and whether everybody's jobs are theirs to see and change."""

    user: str
    admin: bool

    def require_admin(self) -> None:
        """Raise EjbError (FORBIDDEN) for anybody else."""
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
    """A token nobody can guess (256 bits)."""
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


async def principal_of(
    request: Request, manager: Manager, declared: Annotated[object, Depends(_BEARER)] = None
) -> Principal:
    """Raises EjbError (UNAUTHENTICATED) for a token that is unknown or has run out, and for nobody at all.

    A token goes before the unix socket's peer: who shows one means to be its user.
    """
    token = bearer(request)
    if token is not None:
        return await _token_holder(manager, token)
    peer: Peer | None = getattr(request.state, "peer", None)
    if peer is None:
        hint = "use the unix socket, or a token made by `ejb token create`"
        raise EjbError(Code.UNAUTHENTICATED, "this request does not say whose it is", hint=hint)
    user = user_name(peer.uid)
    return Principal(user, peer.uid in (0, os.geteuid()) or user in manager.settings.admins)


Caller = Annotated[Principal, Depends(principal_of)]


async def _token_holder(manager: ManagerPort, token: str) -> Principal:
    wanted = digest(token)

    def look(session: Session) -> Row[str, float | None] | None:
        return session.execute(select(Token.user, Token.expires_s).where(Token.digest == wanted)).first()

    found = await manager.store.read(look)
    if found is None:
        raise EjbError(Code.UNAUTHENTICATED, "this token is not known", hint="make one by `ejb token create`")
    if found.expires_s is not None and found.expires_s <= time.time():
        raise EjbError(Code.UNAUTHENTICATED, "this token has run out", hint="make one by `ejb token create`")
    return Principal(found.user, is_admin(found.user, manager.settings))


def is_admin(user: str, settings: Settings) -> bool:
    """Whether a user (known by name) sees everybody's jobs."""
    return user in (user_name(0), user_name(os.geteuid())) or user in settings.admins
