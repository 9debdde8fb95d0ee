"""Bearer tokens, which users make for themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.responses import Response

from ejbd.api.auth import BEARER, ID_LENGTH, Caller, Manager, digest, new_token
from ejbd.api.models import NAME, Api, NewToken, TokenRequest, Tokens, TokenView
from ejbd.api.port import ManagerPort
from ejbd.errors import Code, EjbError
from ejbd.store.models import Token
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind
from ejbd.wire.rights import Proof, Scope

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.post("", status_code=201)
async def create(manager: Manager, caller: Caller, body: TokenRequest) -> NewToken:
    """A token for oneself, asked for over the unix socket. It is shown this once; only its digest is kept."""
    if caller.proof is not Proof.PEER:
        hint = "run `ejb token create` on the daemon's machine, without EJB_TOKEN"
        raise EjbError(Code.FORBIDDEN, "a token makes no tokens: they are made over the unix socket", hint=hint)
    token, row = await minted(manager, caller.user, body)
    return NewToken(token=token, **_view(row).model_dump())


async def minted(
    manager: ManagerPort, user: str, wanted: TokenRequest, kept: Callable[[str], str] = str
) -> tuple[str, Token]:
    """A new token of a user, and its row. Raises EjbError (CONFLICT) where the user has too many.

    `kept` makes of a token what its row has the digest of.
    """
    token, now, most = new_token(), time.time(), manager.settings.limits.user_tokens

    def add(session: Session) -> Token:
        alive = select(func.count()).select_from(Token).where(Token.user == user, Token.expires_s > now)
        if (session.scalar(alive) or 0) >= most:
            hint = "revoke some: `ejb token list`, `ejb token revoke ID`"
            raise EjbError(Code.CONFLICT, f"{user} has {most} tokens already", hint=hint)
        row = Token(
            digest=digest(kept(token)),
            user=user,
            label=wanted.label,
            created_s=now,
            expires_s=now + wanted.expires_in_s,
            scope=wanted.scope,
        )
        session.add(row)
        told: dict[str, Any] = {"token": row.digest[:ID_LENGTH], "user": row.user, "label": row.label}
        add_event(session, EventKind.TOKEN_CREATED, now, **told, scope=str(row.scope), expires_s=row.expires_s)
        return row

    return token, await manager.store.write(add)


class TokenFilter(Api):
    """Which tokens are wanted."""

    user: Annotated[str | None, Field(max_length=256, pattern=NAME, description="for administrators")] = None
    all_users: Annotated[bool, Field(description="for administrators")] = False


@router.get("")
async def list_tokens(manager: Manager, caller: Caller, query: Annotated[TokenFilter, Query()]) -> Tokens:
    """One's own tokens, for administrators also those of others. Their secrets are not kept."""
    if query.all_users or query.user not in (None, caller.user):
        caller.require(Scope.ADMIN)
    wanted = select(Token).order_by(Token.user, Token.created_s)
    if query.user is not None or not query.all_users:
        wanted = wanted.where(Token.user == (query.user or caller.user))

    def look(session: Session) -> list[TokenView]:
        return [_view(row) for row in session.scalars(wanted)]

    return Tokens(tokens=await manager.store.read(look))


@router.get("/session", status_code=204, dependencies=[Depends(BEARER)])
async def offer_session(request: Request, manager: Manager) -> Response:
    """A session for requests that prove a token and do not send it, and the proof that the daemon offers it."""
    return Response(status_code=204, headers=await request.app.state.token_proofs.offer(request, manager))


@router.delete("/{id}", status_code=204)
async def revoke(request: Request, manager: Manager, caller: Caller, id: TokenId) -> None:
    """Make one of one's own tokens worthless (administrators: any user's). A token can do that to itself alone."""
    if caller.proof is not Proof.PEER and not (caller.token or "").startswith(id):
        hint = "run `ejb token revoke` on the daemon's machine, without EJB_TOKEN"
        raise EjbError(
            Code.FORBIDDEN, "a token revokes itself alone; others are revoked over the unix socket", hint=hint
        )

    def remove(session: Session) -> None:
        found = session.scalars(select(Token).where(Token.digest.startswith(id))).first()
        if found is None or (found.user != caller.user and not caller.admin):
            raise EjbError(Code.NOT_FOUND, f"there is no token {id}", hint="`ejb token list` shows yours")
        caller.touched.user = found.user
        session.delete(found)
        add_event(session, EventKind.TOKEN_REVOKED, time.time(), token=id, user=found.user, by=caller.user)

    await manager.store.write(remove)
    request.app.state.holders.forget()


def _view(row: Token) -> TokenView:
    return TokenView(
        id=row.digest[:ID_LENGTH],
        user=row.user,
        label=row.label,
        created_s=row.created_s,
        expires_s=row.expires_s or 0.0,
        scope=Scope(row.scope),
    )
