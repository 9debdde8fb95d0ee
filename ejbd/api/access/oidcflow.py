"""Signing a browser in by the identity provider: OpenID Connect's authorization code, with PKCE, state and nonce.

The daemon keeps nothing of a browser that is at the provider, so that however many are away keep no other from it. The
browser keeps a secret, signed with a key of this daemon, for ten minutes. State, verifier and nonce are made of that
secret and the key. So the browser that comes back is the one that was sent. What the provider says of its user is the
ID token, held against the same keys and rules as any other token of that provider.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import structlog

from ejbd.api.access.jwks import FRESH_S, document, how, provider
from ejbd.api.access.oidc import Claimed, Oidc
from ejbd.errors import Code, EjbError

GOOD_S = 600.0
MOST_USED = 10_000  # sign-ins that are known to be over; of older ones the provider takes no code twice
_AGAIN = "begin anew, or use a link of `ejb web`"

log = structlog.get_logger(__name__)


class SignIns:
    """Browsers that are at the provider."""

    def __init__(self, oidc: Oidc, clock: Callable[[], float] = time.monotonic) -> None:
        self._oidc = oidc
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._used: dict[str, None] = {}
        self._found: Any = None
        self._found_s = float("-inf")
        self._asking = asyncio.Lock()

    async def begin(self, redirect: str) -> tuple[str, str]:
        """The provider's address for a browser that is to come back to `redirect`, and what the browser keeps.

        Raises EjbError (UNAUTHENTICATED) where the provider does not answer.
        """
        address = str((await self._provider())["authorization_endpoint"])
        kept = f"{secrets.token_urlsafe(32)}.{self._clock() + GOOD_S:.0f}"
        kept += f".{self._derive('browser', kept)}"
        verifier = self._derive("verifier", kept)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect,
            "scope": self._oidc.settings.browser_scope,
            "state": self._derive("state", kept),
            "nonce": self._derive("nonce", kept),
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}", kept

    def _derive(self, use: str, kept: str) -> str:
        """43 characters that cannot be made of `kept` without this daemon's key."""
        mac = hmac.new(self._key, f"{use} {kept}".encode("utf-8", "surrogateescape"), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()

    def check_issuer(self, told: str) -> None:
        """Raise EjbError (UNAUTHENTICATED) where the browser comes from another provider (RFC 9207)."""
        if told and told != self._oidc.settings.issuer:
            raise EjbError(Code.UNAUTHENTICATED, "another identity provider has sent this browser", hint=_AGAIN)

    async def end(self, state: str, kept: str | None, code: str, redirect: str) -> Claimed:
        """The user that the provider says is at this browser, which was to come back to `redirect`.

        Raises EjbError (UNAUTHENTICATED) for all else.
        """
        signed, _, signature = (kept or "").rpartition(".")
        own = hmac.compare_digest(self._derive("browser", signed).encode(), signature.encode("utf-8", "replace"))
        if kept is None or not own or not hmac.compare_digest(self._derive("state", kept).encode(), state.encode()):
            raise EjbError(Code.UNAUTHENTICATED, "another browser has begun this sign-in", hint=_AGAIN)
        if kept in self._used or float(signed.rpartition(".")[2]) <= self._clock():
            raise EjbError(Code.UNAUTHENTICATED, "this sign-in was used already, or has run out", hint=_AGAIN)
        self._used[kept] = None
        if len(self._used) > MOST_USED:
            del self._used[next(iter(self._used))]
        token = await self._exchange_code(code, self._derive("verifier", kept), redirect)
        return await self._oidc.claimed(token, audience=self._client_id, nonce=self._derive("nonce", kept))

    @property
    def _client_id(self) -> str:
        assert self._oidc.settings.client_id is not None
        return self._oidc.settings.client_id

    async def _provider(self) -> Any:
        """Its discovery document, of FRESH_S ago at most."""
        async with self._asking:  # of many that wait for it one asks
            if self._clock() - self._found_s < FRESH_S:
                return self._found
            try:
                async with httpx.AsyncClient(**how(self._oidc.settings)) as client:
                    found = await provider(client, self._oidc.settings)
                for name in ("authorization_endpoint", "token_endpoint"):
                    self._oidc.settings.check_address(str(found[name]))
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, KeyError, TypeError, ValueError) as error:
                raise self._silent(error) from None
            self._found, self._found_s = found, self._clock()
            return found

    async def _exchange_code(self, code: str, verifier: str, redirect: str) -> str:
        """The ID token for a code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
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
