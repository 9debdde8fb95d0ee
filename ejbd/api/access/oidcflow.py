"""Signing a browser in by the identity provider: OpenID Connect's authorization code, with PKCE, state and nonce.

What is asked of the provider stays in memory until the browser comes back, for ten minutes, and is used once. The
browser that comes back has to be the one that was sent: it shows a secret that only it was given. What the provider
says of its user is the ID token, held against the same keys and rules as any other token of that provider.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import structlog

from ejbd.api.access.jwks import document, how, provider
from ejbd.api.access.oidc import Claimed, Oidc
from ejbd.api.auth import digest
from ejbd.errors import Code, EjbError

GOOD_S = 600.0
MOST = 1000
_AGAIN = "begin anew, or use a link of `ejb web`"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a browser was sent away with, and until when it may come back (the clock's seconds)."""

    browser: str  # digest of the secret that it shows again
    verifier: str
    nonce: str
    redirect: str
    until_s: float


class SignIns:
    """Browsers that are at the provider, by their states."""

    def __init__(self, oidc: Oidc, clock: Callable[[], float] = time.monotonic) -> None:
        self._oidc = oidc
        self._clock = clock
        self._sent: dict[str, Sent] = {}

    async def begin(self, redirect: str) -> tuple[str, str]:
        """The provider's address for a browser that is to come back to `redirect`, and what the browser keeps.

        Raises EjbError: TOO_MANY while too many are away, UNAUTHENTICATED where the provider does not answer.
        """
        now = self._clock()
        self._sent = {state: one for state, one in self._sent.items() if one.until_s > now}
        if len(self._sent) >= MOST:
            raise EjbError(Code.TOO_MANY, f"{MOST} browsers are signing in", transient=True, hint="try again later")
        address = str((await self._provider())["authorization_endpoint"])
        state, browser, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(4))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        self._sent[digest(state)] = Sent(digest(browser), verifier, nonce, redirect, now + GOOD_S)
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect,
            "scope": self._oidc.settings.browser_scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}", browser

    def check_issuer(self, told: str) -> None:
        """Raise EjbError (UNAUTHENTICATED) where the browser comes from another provider (RFC 9207)."""
        if told and told != self._oidc.settings.issuer:
            raise EjbError(Code.UNAUTHENTICATED, "another identity provider has sent this browser", hint=_AGAIN)

    async def end(self, state: str, browser: str | None, code: str) -> Claimed:
        """The user that the provider says is at this browser. Raises EjbError (UNAUTHENTICATED) for all else."""
        sent = self._sent.pop(digest(state), None)
        if sent is None or sent.until_s <= self._clock():
            raise EjbError(Code.UNAUTHENTICATED, "this sign-in was used already, or has run out", hint=_AGAIN)
        if browser is None or not secrets.compare_digest(digest(browser), sent.browser):
            raise EjbError(Code.UNAUTHENTICATED, "another browser has begun this sign-in", hint=_AGAIN)
        token = await self._exchanged(code, sent)
        return await self._oidc.claimed(token, audience=self._client_id, nonce=sent.nonce)

    @property
    def _client_id(self) -> str:
        assert self._oidc.settings.client_id is not None
        return self._oidc.settings.client_id

    async def _provider(self) -> Any:
        try:
            async with httpx.AsyncClient(**how(self._oidc.settings)) as client:
                found = await provider(client, self._oidc.settings)
            for name in ("authorization_endpoint", "token_endpoint"):
                self._oidc.settings.check_address(str(found[name]))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, KeyError, TypeError, ValueError) as error:
            raise self._silent(error) from None
        return found

    async def _exchanged(self, code: str, sent: Sent) -> str:
        """The ID token for a code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": sent.redirect,
            "code_verifier": sent.verifier,
            "client_id": self._client_id,
        }
        headers = {}
        if (secret := self._oidc.settings.client_secret()) is not None:
            del form["client_id"]  # RFC 6749, 2.3.1: both parts are encoded first
            pair = f"{quote(self._client_id, safe='')}:{quote(secret, safe='')}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        told = await self._provider()
        try:
            async with httpx.AsyncClient(**how(self._oidc.settings)) as client:
                address = str(told["token_endpoint"])
                answer = await document(client, address, method="POST", data=form, headers=headers)
            return str(answer["id_token"])
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            log.warning("oidc.code-refused", issuer=self._oidc.settings.issuer, status=status)
            message = f"the identity provider does not take the code that it gave this browser ({status})"
            raise EjbError(Code.UNAUTHENTICATED, message, hint=_AGAIN) from None
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, KeyError, TypeError, ValueError) as error:
            raise self._silent(error) from None

    def _silent(self, error: Exception) -> EjbError:
        log.warning("oidc.no-answer", issuer=self._oidc.settings.issuer, error=f"{type(error).__name__}: {error}")
        message = "the identity provider of this site does not answer as it should"
        return EjbError(Code.UNAUTHENTICATED, message, transient=True, hint="use a link of `ejb web` meanwhile")
