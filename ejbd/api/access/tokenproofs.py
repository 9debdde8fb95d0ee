"""Requests that prove a token without sending it, as workers prove their secret (docs/rest.md).

The secret is the token's digest, which the daemon keeps. A client asks for a session first (`OFFER`), and believes the
one that the daemon has proved: so it sends nothing of its user's to a program that is none.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.types import Scope

from ejbd.api.port import ManagerPort
from ejbd.errors import Code, EjbError
from ejbd.manager.protocol import proofs
from ejbd.manager.protocol.proofs import Claim
from ejbd.store.models import Token

OFFER = "/v1/tokens/session"


def target_of(scope: Scope) -> str:
    """The address that a request was sent to, as it went over the wire."""
    target: str = scope["raw_path"].decode("latin-1")
    return f"{target}?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else target


def has_proof(request: Request) -> bool:
    """Whether a request proves a token, or means to."""
    return request.headers.get("authorization", "").startswith(proofs.SCHEME + " ")


class TokenProofs:
    """The sessions of this process's clients. Tokens are known by the beginnings of their digests."""

    def __init__(self) -> None:
        self._sessions = proofs.Sessions()

    async def accept(self, request: Request, manager: ManagerPort) -> str:
        """The digest of the token that a request proves, once. Raises EjbError (UNAUTHENTICATED)."""
        claim, secret = await _proved(request, manager)
        if not self._sessions.accept(claim):
            hint = f"ask for a session: GET {OFFER}"
            raise EjbError(Code.UNAUTHENTICATED, "this session is not known here, or went on without it", hint=hint)
        request.state.content = claim.content
        return secret

    async def offer(self, request: Request, manager: ManagerPort) -> dict[str, str]:
        """The headers with a session, and the proof that it is the daemon's. Raises EjbError (UNAUTHENTICATED)."""
        claim, secret = await _proved(request, manager)
        session = self._sessions.offer(claim.subjob)
        return {proofs.SESSION_HEADER: session, proofs.PROOF_HEADER: proofs.offer_proof(secret, claim, session)}


async def _proved(request: Request, manager: ManagerPort) -> tuple[Claim, str]:
    claim = proofs.claim_of(request.headers.get("authorization", ""))
    if claim is None or len(claim.subjob) != 16 or not claim.subjob.isalnum():
        raise EjbError(Code.UNAUTHENTICATED, "this is no proof of a token")

    def look(session: Session) -> str | None:
        after, until = claim.subjob, claim.subjob + "g"  # behind each hexadecimal digit: the index answers
        return session.scalar(select(Token.digest).where(Token.digest > after, Token.digest < until))

    secret = await manager.store.read(look)
    if secret is None or not proofs.holds(claim, secret, request.method, target_of(request.scope)):
        raise EjbError(Code.UNAUTHENTICATED, "this proof is of no token that is known here")
    return claim, secret
