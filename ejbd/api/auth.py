"""The one function that every way into the daemon asks: which user sends this, by which proof, and what they may do.

A worker proves itself to :mod:`ejbd.api.worker_door`, which lets it through to the addresses of workers and no others.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from ejbd.api.access.cookies import cookie_of, is_encrypted, page_secret, refuse_beyond_forms
from ejbd.api.access.needs import needed
from ejbd.api.access.oidc import Oidc, has_ended, looks_signed
from ejbd.api.access.roles import Roles, overflow_uid
from ejbd.api.access.tokenproofs import TokenProofs, has_proof
from ejbd.api.port import ManagerPort
from ejbd.api.shares import ADMINISTRATORS
from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.store.models import Token
from ejbd.store.turns import ASKER
from ejbd.wire.rights import Proof, Role, Scope

TOKEN_PREFIX = "ejb_"
ID_LENGTH = 16  # of the digest's hexadecimal digits: enough to tell tokens apart, useless as a token
HOLDERS_KEPT = 1000
REFUSED_S = 1.0  # until one too many is answered: a client that asks on and on would cost others more than its requests
BEARER = HTTPBearer(
    auto_error=False, description="a token of POST /v1/tokens; not needed over the unix socket, where the peer is known"
)
_MAKE_ONE = "make one by `ejb token create`"


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a unix socket, as the kernel shows it."""

    pid: int
    uid: int
    gid: int


@dataclass(slots=True)
class Touched:
    """What a request turned out to be about: a job, or what else a user owns. Handlers fill it in, for the audit."""

    job: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """The user that asks. `scope`: how far this request may go, the narrower of the user's role and of the token.

    `token`: the digest of what they showed; None of a peer. `until_s`: its end, where that stands in the token. `gid`:
    the group of a peer's process.
    """

    user: str
    role: Role
    proof: Proof
    scope: Scope
    token: str | None = None
    until_s: float | None = None
    gid: int | None = None
    touched: Touched = field(default_factory=Touched, compare=False)

    @property
    def sees_all(self) -> bool:
        """Whether the jobs of all users are this one's to see and to steer."""
        return self.scope.covers(Scope.OPERATE)

    @property
    def admin(self) -> bool:
        """Whether tokens and histories of others are this one's to see and to change."""
        return self.scope is Scope.ADMIN

    def require(self, need: Scope) -> None:
        """Raise EjbError (FORBIDDEN) unless this request may go so far."""
        if self.scope.covers(need):
            return
        if self.role.scope.covers(need):
            what = "this token is for looking only" if self.scope is Scope.READ else f"this needs scope {need}"
            hint = f"{_MAKE_ONE} --scope {need}".replace("` --", " --") + "`"
            raise EjbError(Code.FORBIDDEN, what, hint=hint)
        one, setting = ("an administrator", "admins") if need is Scope.ADMIN else ("an operator", "operators")
        raise EjbError(Code.FORBIDDEN, f"{self.user} is not {one} of EJB", hint=f"see `{setting}` in the configuration")


async def manager_of(request: Request) -> ManagerPort:
    """Not a plain function: FastAPI would run that in a thread, for every request."""
    manager: ManagerPort = request.app.state.manager
    return manager


Manager = Annotated[ManagerPort, Depends(manager_of)]


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


async def principal_of(request: Request, declared: Annotated[object, Depends(BEARER)] = None) -> Principal:
    """Raises EjbError: UNAUTHENTICATED for a token that is unknown or has run out, and for no user at all; FORBIDDEN
    where the address needs more than this request may (:mod:`ejbd.api.access.needs`); TOO_MANY.

    A token goes before the unix socket's peer: a client that shows one means to be its user.
    """
    found: Principal | None = getattr(request.state, "principal", None)  # asked before, by the guard at the door
    if found is None:
        found = await _principal(request)
        request.state.asker = found  # for the audit, also where it is refused now
        ASKER.set("" if found.role is Role.ADMIN else found.user)
        try:
            request.app.state.allowances.request(found)
        except EjbError:
            await asyncio.sleep(REFUSED_S)
            raise
        found.require(needed(request.method, request.scope["path"]))
        request.state.principal = found
    if (connection := getattr(request.state, "connection", None)) is not None:
        connection.is_of(ADMINISTRATORS if found.sees_all else f"user {found.user}")
    return found


async def _principal(request: Request) -> Principal:
    roles: Roles = request.app.state.roles
    holders, manager = request.app.state.holders, request.app.state.manager
    if has_proof(request):
        _refuse_in_the_clear(request)
        proved: TokenProofs = request.app.state.token_proofs
        return await _token_holder(holders, roles, manager, await proved.accept(request, manager))
    token = bearer(request)
    if token is not None:
        _refuse_in_the_clear(request)
        oidc: Oidc | None = request.app.state.oidc
        if oidc is not None and looks_signed(token):
            found = await _claimant(oidc, roles, token)
        else:
            if not token.startswith(TOKEN_PREFIX):  # nor what a page's secret is kept as
                raise EjbError(Code.UNAUTHENTICATED, "this token is not known", hint=_MAKE_ONE)
            found = await _token_holder(holders, roles, manager, digest(token))
        _refuse_on_open_port(request, found)
        return found
    peer: Peer | None = getattr(request.state, "peer", None)
    if peer is None and (secret := cookie_of(request)) is not None:
        _refuse_in_the_clear(request)
        refuse_beyond_forms(request)
        found = await _token_holder(holders, roles, manager, digest(page_secret(request, secret)), Proof.PAGE)
        await _refuse_anothers_browser(request, roles, found.user)
        return found
    if peer is None:
        hint = "use the unix socket, or a token made by `ejb token create`"
        raise EjbError(Code.UNAUTHENTICATED, "this request does not say which user sends it", hint=hint)
    if peer.uid == overflow_uid():
        hint = "run the client in the user namespace of the daemon, or use a token made by `ejb token create`"
        raise EjbError(Code.UNAUTHENTICATED, "the kernel cannot say here which user sends this request", hint=hint)
    user = await roles.name_of(peer.uid)
    role = await roles.of(user)
    return Principal(user, role, Proof.PEER, role.scope, gid=peer.gid)


def _is_plain(request: Request) -> bool:
    """Whether a request came over TCP, and no encryption keeps it from being read."""
    server = request.scope.get("server")
    if server is None or server[1] is None or is_encrypted(request):  # the unix socket has no port
        return False
    settings: Settings = request.app.state.manager.settings
    return not settings.tls.by_proxy


def _refuse_in_the_clear(request: Request) -> None:
    """Raise EjbError (FORBIDDEN) for a token that others on its way could read: it is good for them, too.

    Workers are let in there: they never send what they prove to know.
    """
    if not _is_plain(request) or is_loopback(request.scope["server"][0]):
        return
    hint = "use https (`tls.listen`), or say `tls.by_proxy = true` where a proxy in front encrypts; revoke this token"
    raise EjbError(Code.FORBIDDEN, "no token is taken at this address, which is not encrypted", hint=hint)


def _refuse_on_open_port(request: Request, found: Principal) -> None:
    """Raise EjbError (FORBIDDEN) for a token that changes things, where another user could have the port.

    While the daemon is away any user could listen there, and be sent the token. So no client gets used to it.
    """
    if found.scope is Scope.READ or not _is_plain(request):
        return
    if request.scope["server"][1] in request.app.state.open_ports:
        what = "at this port, which another user could have, only tokens of scope read are taken"
        hint = "use the unix socket, `ejb` or ejbd.client, which send no token here, or https; revoke this token"
        raise EjbError(Code.FORBIDDEN, what, hint=hint)


async def _refuse_anothers_browser(request: Request, roles: Roles, user: str) -> None:
    """Raise EjbError (FORBIDDEN) for a cookie that a process of another user of this machine sends.

    Browsers send a cookie to every port of its host, and so to whatever listens there. A tunnel of ssh is its user's.
    """
    connection = getattr(request.state, "connection", None)
    if connection is None or not _is_plain(request):
        return
    owner: int | None = connection.owner
    if owner is not None and (owner == os.geteuid() or await roles.name_of(owner) == user):
        return
    hint = "open the page as that user, by https, or by a proxy (`tls.by_proxy`)"
    raise EjbError(Code.FORBIDDEN, f"the browser is of another user of this machine than {user}", hint=hint)


def is_loopback(host: str) -> bool:
    """Whether what is sent to this address of ours stays on this machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


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
    if caller.until_s is not None:
        return not has_ended(caller.until_s)
    if caller.token is None:
        return True
    found = await holders.holder(manager, caller.token)
    return found is not None and not _has_ended(found[1])


def _has_ended(expires_s: float | None) -> bool:
    return expires_s is None or expires_s <= time.time()  # all of them end


async def ordinary(roles: Roles, user: str) -> None:
    """Raise EjbError (UNAUTHENTICATED) for a user that no claim may mean: one that is not known here, or root."""
    if not await roles.is_ordinary(user):
        message = f"this token is not taken: {user!a} is no user of this machine that could be meant"
        raise EjbError(Code.UNAUTHENTICATED, message, hint="see [oidc] in the configuration")


async def _claimant(oidc: Oidc, roles: Roles, token: str) -> Principal:
    claimed = await oidc.claimed(token)
    await ordinary(roles, claimed.user)
    role = await roles.of(claimed.user)
    scope = claimed.scope.within(role.scope)
    return Principal(claimed.user, role, Proof.OIDC, scope, digest(token), claimed.until_s)


async def _token_holder(
    holders: Holders, roles: Roles, manager: ManagerPort, wanted: str, proof: Proof = Proof.TOKEN
) -> Principal:
    found = await holders.holder(manager, wanted)
    if found is None:
        raise EjbError(Code.UNAUTHENTICATED, "this token is not known", hint=_MAKE_ONE)
    user, expires_s, scope = found
    if _has_ended(expires_s):
        raise EjbError(Code.UNAUTHENTICATED, "this token has run out", hint=_MAKE_ONE)
    role = await roles.of(user)
    return Principal(user, role, proof, Scope(scope).within(role.scope), wanted)
