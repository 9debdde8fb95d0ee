"""The public keys of an identity provider, fetched when they are needed and kept for a while."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from typing import Any

import httpx
import structlog

from ejbd.config import OidcSettings
from ejbd.errors import Code, EjbError

FRESH_S = 300.0  # a key that the provider has withdrawn is believed no longer than this
STALE_S = 3600.0  # while the provider does not answer, the keys that are known are believed this long
PAUSE_S = 10.0  # between two looks: tokens with made-up key ids do not make us ask again and again
ANSWER_S = 5.0
LARGEST_BYTES = 256 * 1024
DISCOVERY = "/.well-known/openid-configuration"

log = structlog.get_logger(__name__)


class KeySet:
    """Keys by their ids. `read` makes them of the document; it may raise KeyError, TypeError or ValueError."""

    def __init__(self, settings: OidcSettings, read: Callable[[Any], dict[str | None, Any]]) -> None:
        self._settings = settings
        self._read = read
        self._keys: dict[str | None, Any] = {}
        self._fetched_s = self._tried_s = float("-inf")
        self._lock = asyncio.Lock()

    async def key(self, kid: str | None) -> Any:
        """The key of this id; of a token without one the only key. Raises EjbError (UNAUTHENTICATED)."""
        if self._is_due(kid):
            async with self._lock:  # of many that wait for the keys one asks
                if self._is_due(kid):
                    await self._fetch()
        if time.monotonic() - self._fetched_s > STALE_S:
            message = "the identity provider of this site does not answer, so that no token of it can be checked"
            raise EjbError(Code.UNAUTHENTICATED, message, transient=True, hint="use the unix socket meanwhile")
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if kid not in self._keys:
            raise EjbError(Code.UNAUTHENTICATED, "this token is not taken: its key is none of the identity provider's")
        return self._keys[kid]

    def _is_due(self, kid: str | None) -> bool:
        now = time.monotonic()
        wanted = now - self._fetched_s > FRESH_S or (kid is not None and kid not in self._keys)
        return wanted and now - self._tried_s > PAUSE_S

    async def _fetch(self) -> None:
        self._tried_s = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S), httpx.AsyncClient(**how(self._settings)) as client:
                url = self._settings.jwks_url
                if url is None:
                    url = str((await provider(client, self._settings))["jwks_uri"])
                    self._settings.check_address(url)
                keys = self._read(await document(client, url))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, KeyError, TypeError, ValueError) as error:
            log.warning("oidc.keys-not-fetched", issuer=self._settings.issuer, error=f"{type(error).__name__}: {error}")
            return
        self._keys, self._fetched_s = keys, time.monotonic()
        log.info("oidc.keys", issuer=self._settings.issuer, keys=len(keys))


def how(settings: OidcSettings) -> dict[str, Any]:
    """What a client of the provider is made with. No redirects: keys come from where the settings say."""
    verify = ssl.create_default_context(cafile=settings.ca)
    return {"verify": verify, "follow_redirects": False, "timeout": ANSWER_S}


async def provider(client: httpx.AsyncClient, settings: OidcSettings) -> Any:
    """Its discovery document. Raises as :func:`document` does, and ValueError where another issuer answers."""
    told = await document(client, settings.issuer.rstrip("/") + DISCOVERY)
    if told["issuer"] != settings.issuer:
        raise ValueError("the issuer calls itself otherwise")
    return told


async def document(client: httpx.AsyncClient, url: str, method: str = "GET", **more: Any) -> Any:
    """Raises httpx.HTTPError, TimeoutError, and ValueError for what is too long or no JSON."""
    data = bytearray()
    async with asyncio.timeout(ANSWER_S), client.stream(method, url, **more) as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_bytes():
            data += piece
            if len(data) > LARGEST_BYTES:
                raise ValueError(f"more than {LARGEST_BYTES} bytes")
    return json.loads(data)
