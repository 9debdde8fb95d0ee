"""Proofs between manager and workers (docs/worker-protocol.md): what knows a subjob's secret, and that nothing is old.

The secret is in the subjob's folder of the spool, which only its user can read, and never goes over the wire. A request
is proved over its method, target, session, count and body; an answer over the request's proof, its status and body. A
session is this process's own offer, so that nothing sent to an earlier daemon counts, and its counts only grow.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass

SCHEME = "EJB-HMAC-SHA256"
PROOF_HEADER, SESSION_HEADER = "X-EJB-Proof", "X-EJB-Session"
MOST_SESSIONS = 50_000
_CLAIM = re.compile(
    rf"{SCHEME} (?P<subjob>[\x21-\x7e]{{1,100}}) (?P<session>[0-9a-f-]{{1,64}}) (?P<count>[0-9]{{1,16}})"
    r" (?P<content>[0-9a-f]{64}) (?P<proof>[0-9a-f]{64})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the Authorization header of a worker's request says. `content`: the SHA-256 sum of the body to come."""

    subjob: str
    session: str
    count: int
    content: str
    proof: str


def claim_of(header: str) -> Claim | None:
    """None for a header of another form."""
    match = _CLAIM.fullmatch(header)
    if match is None:
        return None
    return Claim(match["subjob"], match["session"], int(match["count"]), match["content"], match["proof"])


def new_secret() -> str:
    """A secret for one subjob (256 bits)."""
    return secrets.token_hex(32)


def holds(claim: Claim, secret: str, method: str, target: str) -> bool:
    """Whether the maker of this claim knows the secret. The body is still to be held against `content`."""
    proof = _mac(secret, "ejb request", method, target, claim.session, str(claim.count), claim.content)
    return hmac.compare_digest(proof, claim.proof)


def answer_proof(secret: str, claim: Claim, status: int, session: str, body: bytes) -> str:
    """The proof of the answer to a request; `session` is the one offered in it, or ""."""
    return _mac(secret, "ejb answer", claim.proof, str(status), session, hashlib.sha256(body).hexdigest())


def offer_proof(secret: str, claim: Claim, session: str) -> str:
    """The proof of a session that is offered to the maker of a claim."""
    return _mac(secret, "ejb offer", claim.proof, session)


def _mac(secret: str, *parts: str) -> str:
    return hmac.new(secret.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


class Sessions:
    """The sessions of this process, and how far each has counted. Knows no clock.

    An offer is kept nowhere until it is used: it proves itself. Of more than `most` sessions the one unused for longest
    is forgotten. Every older offer that is not in use goes with it: its holder is offered another.
    """

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._key = secrets.token_bytes(32)
        self._next = 1
        self._oldest = 0  # offers up to this number are worth nothing any more
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    def offer(self, subjob: str) -> str:
        """A session for the workers of a subjob."""
        number, self._next = self._next, self._next + 1
        return self._named(number, subjob)

    def accept(self, claim: Claim) -> bool:
        """Whether this request (its proof holds) is new and of a session of ours. Never true twice."""
        entry = (claim.subjob, claim.session)
        last = self._counts.get(entry)
        if last is None:
            number = self._number(claim)
            if number is None or number <= self._oldest:
                return False
        elif claim.count <= last:
            return False
        self._counts[entry] = claim.count
        self._counts.move_to_end(entry)
        while len(self._counts) > self._most:
            (_, gone), _ = self._counts.popitem(last=False)
            self._oldest = max(self._oldest, int(gone.partition("-")[0]))
        return True

    def _number(self, claim: Claim) -> int | None:
        head, _, _ = claim.session.partition("-")
        if not head.isdigit():
            return None
        number = int(head)
        return number if hmac.compare_digest(self._named(number, claim.subjob), claim.session) else None

    def _named(self, number: int, subjob: str) -> str:
        return f"{number}-{hmac.new(self._key, f'{number} {subjob}'.encode(), hashlib.sha256).hexdigest()[:32]}"
