"""HTTP over TCP, by httpx. Over https a token is sent; elsewhere it is proved (docs/rest.md)."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Generator, Iterator
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
    found = {"base_url": url, "trust_env": False, "verify": verify}
    if place.token and not place.sends_token:
        found["auth"] = TokenProof(place)
    return found


class TokenProof(httpx.Auth):
    """Proves a token and sends none, since any program may listen at an address that is not encrypted.

    A body is sent only to what has proved just before that it knows the token. Raises EjbError: UNAUTHENTICATED where
    that fails, INVALID for a token of an identity provider, which EJB's daemon does not keep.
    """

    requires_request_body = True

    def __init__(self, place: Place) -> None:
        assert place.token is not None
        if not place.token.startswith("ejb_"):
            hint = "use https, or a token of `ejb token create`"
            raise EjbError(Code.INVALID, "only a token of EJB's own is taken by an http address", hint=hint)
        self._place = place
        self._secret = hashlib.sha256(place.token.encode()).hexdigest()
        self._sessions: list[tuple[str, int]] = []  # that no request uses, and how far each has counted

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        for is_last in (False, True):
            if self._sessions and not request.content:
                session, count = self._sessions.pop()
            else:
                session, count = (yield from self._begin_session(request.url)), 0
            header, _ = self._claim(request, session, count + 1)
            request.headers["Authorization"] = header
            response = yield request
            if response.status_code != 401 or is_last:
                self._sessions.append((session, count + 1))
                return

    def _begin_session(self, url: httpx.URL) -> Generator[httpx.Request, httpx.Response, str]:
        asked = httpx.Request("GET", url.copy_with(raw_path=b"/v1/tokens/session"))
        asked.headers["Authorization"], claimed = self._claim(asked, "-", 1)
        response = yield asked
        session: str = response.headers.get("X-EJB-Session", "")
        proof = self._mac("ejb offer", claimed, session)
        if not hmac.compare_digest(proof, response.headers.get("X-EJB-Proof", "")):
            why = "what answers there does not know this token, which has ended, or is not EJB's daemon"
            code = Code.UNREACHABLE if response.status_code >= 500 else Code.UNAUTHENTICATED
            raise EjbError(code, why, where=str(self._place), hint="nothing was sent; `ejb token create`")
        return session

    def _claim(self, request: httpx.Request, session: str, count: int) -> tuple[str, str]:
        """The header of a request, and the proof in it."""
        content = hashlib.sha256(request.content).hexdigest()
        target = request.url.raw_path.decode("ascii").removesuffix("?")
        proof = self._mac("ejb request", request.method, target, session, str(count), content)
        return f"EJB-HMAC-SHA256 {self._secret[:16]} {session} {count} {content} {proof}", proof

    def _mac(self, *parts: str) -> str:
        return hmac.new(self._secret.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


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
