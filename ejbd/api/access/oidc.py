"""Tokens that the site's identity provider has signed (OpenID Connect): read, held against its keys, mapped to a user.

Only asymmetric signatures are taken, and only those that the settings name: a public key is never a secret to sign by.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ejbd.api.access.jwks import KeySet
from ejbd.config import OidcSettings
from ejbd.errors import Code, EjbError
from ejbd.wire.rights import Scope

LEEWAY_S = 30.0  # between the provider's clock and ours
LONGEST_TOKEN = 16 * 1024
SCOPE_MARK = "ejb:"  # before a scope of EJB's among the words of a token's `scope`
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a token shows: a user by name, how far it may go, and its end (epoch seconds)."""

    user: str
    scope: Scope
    until_s: float


def looks_signed(token: str) -> bool:
    """Whether this is a JSON web token by its shape, which none of EJB's own has."""
    return _SHAPE.fullmatch(token) is not None


def _library() -> ModuleType:
    """PyJWT. Raises EjbError (INVALID) where it is not there: the daemon's start says so, not its first user."""
    try:
        import cryptography  # noqa: F401  # without it PyJWT knows shared secrets only
        import jwt
    except ImportError:
        hint = 'pip install "ejb[oidc]"'
        raise EjbError(Code.INVALID, "tokens of an identity provider need PyJWT", where="oidc", hint=hint) from None
    return jwt


class Oidc:
    """The one issuer that the settings name."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._jwt = _library()
        self.keys = KeySet(settings, self._public_keys)
        self._rule = re.compile(settings.user)

    async def claimed(self, token: str, *, audience: str | None = None, nonce: str | None = None) -> Claimed:
        """What the token shows. Raises EjbError (UNAUTHENTICATED) for every other one than a good one.

        `audience`: of an ID token its client's, in the place of the settings'. `nonce`: what it has to repeat.
        """
        if len(token) > LONGEST_TOKEN:
            raise _refusal("it is longer than any token of use")
        try:
            header = self._jwt.get_unverified_header(token)
        except self._jwt.PyJWTError:
            raise _refusal("it cannot be read") from None
        if header.get("alg") not in self.settings.algorithms:
            raise _refusal(f"its signature is of a kind that is not taken here: {str(header.get('alg'))[:20]!a}")
        kid = header.get("kid")
        key = await self.keys.key(kid if isinstance(kid, str) else None)
        try:
            claims = self._jwt.decode(
                token,
                key,
                algorithms=list(self.settings.algorithms),
                audience=audience or self.settings.audience,
                issuer=self.settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", self.settings.claim]},
            )
        except self._jwt.PyJWTError as error:
            raise _refusal(_why(error)) from None
        if nonce is not None and not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _refusal("it was made for another sign-in")
        # OpenID Connect Core, 3.1.3.7: of a token for several, our client is the one that it was given to.
        others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if audience is not None and (others or "azp" in claims) and claims.get("azp") != audience:
            raise _refusal("it was given to another client")
        return Claimed(self._user(claims), self._scope(claims), float(claims["exp"]))

    def _user(self, claims: Mapping[str, Any]) -> str:
        name = claims[self.settings.claim]
        found = self._rule.fullmatch(name) if isinstance(name, str) else None
        user = found.groupdict().get("user", found.group()) if found is not None else None
        if not user:
            raise _refusal(f"its {self.settings.claim} names no user by the rule of this site")
        return user

    def _scope(self, claims: Mapping[str, Any]) -> Scope:
        """The widest that the token has a word for, where it has any of ours; never wider than the settings allow."""
        said = claims.get("scope", "")
        words = said.split() if isinstance(said, str) else []
        ours = {word.removeprefix(SCOPE_MARK) for word in words if word.startswith(SCOPE_MARK)}
        if not ours:
            return self.settings.scope
        known = [scope for scope in Scope if scope in ours]
        return self.settings.scope.within(known[-1] if known else Scope.READ)

    def _public_keys(self, document: Any) -> dict[str | None, Any]:
        """The keys of a set by their ids; those that do not verify signatures, or that are secrets, are left out."""
        found: dict[str | None, Any] = {}
        for one in document["keys"]:
            if (
                not isinstance(one, dict)
                or one.get("use", "sig") != "sig"
                or one.get("kty") not in ("RSA", "EC", "OKP")
            ):
                continue
            try:
                found[one.get("kid")] = self._jwt.PyJWK(one)
            except self._jwt.PyJWTError:
                continue
        return found


def has_ended(until_s: float) -> bool:
    """Whether a token with this end is one no more."""
    return until_s + LEEWAY_S <= time.time()


def _refusal(why: str) -> EjbError:
    hint = "get a new one from the identity provider of this site"
    return EjbError(Code.UNAUTHENTICATED, f"this token is not taken: {why}", hint=hint)


def _why(error: Exception) -> str:
    """The reason in our own words: those of a library may repeat what the token holds."""
    return _WHY.get(type(error).__name__, "its signature or its claims do not hold")


_WHY = {
    "ExpiredSignatureError": "it has run out",
    "ImmatureSignatureError": "it is not yet good",
    "InvalidAudienceError": "it is for another audience",
    "InvalidIssuerError": "another issuer has made it",
    "InvalidSignatureError": "its signature does not hold",
    "MissingRequiredClaimError": "it lacks an end, an issuer, an audience or the claim that names its user",
}
