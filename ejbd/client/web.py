"""HTTP over TCP, by httpx."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import httpx

from ejbd.client.messages import CONNECT_S, LostConnection, Place, Request
from ejbd.errors import Code, EjbError


def settings(place: Place) -> dict[str, Any]:
    """What an httpx client is made with. A daemon is on the site: no proxy of the environment stands before it.

    Raises EjbError (INVALID) for what is no address.
    """
    assert place.url is not None
    try:
        url = httpx.URL(place.url)
    except (httpx.InvalidURL, ValueError):
        raise place.misspelt() from None
    if url.scheme not in ("http", "https") or not url.host:
        raise place.misspelt()
    try:
        verify: ssl.SSLContext | bool = url.scheme == "https" and ssl.create_default_context(cafile=place.ca)
    except (OSError, ssl.SSLError) as error:
        raise EjbError(Code.INVALID, f"it holds no certificates: {words(error)}", where=f"EJB_CA={place.ca}") from None
    return {"base_url": url, "trust_env": False, "verify": verify}


def within(seconds: float | None) -> httpx.Timeout:
    """How long an answer may take, and a silence in it."""
    return httpx.Timeout(seconds, connect=CONNECT_S)


class WebTransport:
    """The same as a UnixTransport, over TCP."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._client = httpx.Client(**settings(place))
        self._response: httpx.Response | None = None
        self._answered = False

    @property
    def kept(self) -> bool:
        return self._answered

    def connect(self) -> None:
        """See whether the daemon answers."""
        self.send(Request("GET", "/v1/version", {}, None), CONNECT_S)
        self.body()

    def send(self, request: Request, timeout_s: float | None) -> tuple[int, dict[str, str]]:
        self._drop()
        wanted = self._client.build_request(
            request.method, request.target, headers=request.headers, content=request.data, timeout=within(timeout_s)
        )
        try:
            self._response = self._client.send(wanted, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self.place.unreachable(words(error)) from None
        except (httpx.HTTPError, OSError) as error:
            raise self._lost(error) from None
        self._answered = True
        return self._response.status_code, dict(self._response.headers)

    def body(self) -> bytes:
        assert self._response is not None
        try:
            return self._response.read()
        except (httpx.HTTPError, OSError) as error:
            raise self._lost(error) from None

    def lines(self) -> Iterator[bytes]:
        assert self._response is not None
        try:
            for line in self._response.iter_lines():
                yield line.encode()
        except (httpx.HTTPError, OSError) as error:
            raise self._lost(error) from None

    def chunks(self) -> Iterator[bytes]:
        assert self._response is not None
        try:
            yield from self._response.iter_bytes()
        except (httpx.HTTPError, OSError) as error:
            raise self._lost(error) from None

    def close(self) -> None:
        self._drop()
        self._answered = False

    def _drop(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None

    def _lost(self, error: Exception) -> LostConnection:
        self.close()
        return LostConnection(words(error))


def words(error: Exception) -> str:
    """What is wrong, without the number that the system gives it."""
    text = str(error) or type(error).__name__
    return text.partition("] ")[2] if text.startswith("[Errno") else text
