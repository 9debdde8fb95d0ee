"""The way to the daemon: HTTP over its unix socket, or over TCP with a token.

`http.client` rather than a richer library: its import takes a fifth of the time, and `ejb submit` is started often.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from ejbd.errors import Code, EjbError
from ejbd.paths import SOCKET_NAME, default_state_dir

CONNECT_S = 10.0
ANSWER_S = 60.0
STREAM_SILENCE_S = 45.0  # the daemon says something every 15 s
_REPEAT_AFTER_S = (0.2, 0.5, 1.0, 2.0, 2.0)  # enough for a daemon that is being restarted


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(self.path)
        self.sock.settimeout(self.timeout)


class Answer(NamedTuple):
    """A successful answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON values. Raises EjbError (INTERNAL) for what is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise EjbError(Code.INTERNAL, "the daemon's answer is not JSON", hint="is this EJB's address?") from None


class LostConnection(Exception):
    """The daemon went away while a request was under way: it may have been carried out, or not."""


class Client:
    """Requests to one daemon. Raises EjbError, also for what the daemon answers as a problem document."""

    def __init__(self, url: str | None = None, socket_path: str | None = None, token: str | None = None) -> None:
        self.url = url
        self.socket_path = socket_path or str(default_state_dir() / SOCKET_NAME)
        self.token = token
        self.answer_s = ANSWER_S
        self._connection: http.client.HTTPConnection | None = None

    @property
    def place(self) -> str:
        return self.url or self.socket_path

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request and its answer. A GET is repeated once if the kept connection had ended meanwhile."""
        kept = self._connection is not None
        try:
            return self._request(method, path, query, body, headers)
        except LostConnection as lost:
            error = lost
        if kept and method == "GET":
            try:
                return self._request(method, path, query, body, headers)
            except LostConnection as lost:
                error = lost
        raise self._unreachable(f"the connection was lost: {error}")

    def request_repeatedly(self, method: str, path: str, *, body: Any, key: str) -> Answer:
        """A request that may be sent again, since `key` tells the daemon that it is the same one."""
        headers = {"Idempotency-Key": key}
        for delay_s in _REPEAT_AFTER_S:
            try:
                return self._request(method, path, None, body, headers)
            except LostConnection:
                time.sleep(delay_s)
                self._await_daemon()
        return self.request(method, path, body=body, headers=headers)

    def _await_daemon(self) -> None:
        """Give a daemon that is being restarted some seconds; what then fails is told by the request itself."""
        for delay_s in _REPEAT_AFTER_S:
            try:
                self._connect(self.answer_s)
                return
            except EjbError:
                time.sleep(delay_s)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON that is at `path`; queries that are None are left out."""
        return self.request("GET", path, query={k: v for k, v in query.items() if v is not None}).json()

    def stream(self, path: str, *, query: Mapping[str, Any] | None = None, after: int | None = None) -> Iterator[bytes]:
        """The lines of a stream as they come. Raises LostConnection when it breaks."""
        headers = {"Last-Event-ID": str(after)} if after is not None else {}
        response = self._send("GET", path, query, None, headers, STREAM_SILENCE_S)
        try:
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise LostConnection(str(error)) from None
        finally:
            self.close()

    def chunks(self, path: str, *, query: Mapping[str, Any]) -> Iterator[bytes]:
        """The bytes of a stream as they come, however long it is silent. Raises LostConnection when it breaks."""
        response = self._send("GET", path, query, None, {}, None)
        try:
            while data := response.read1(65536):
                yield data
        except (OSError, http.client.HTTPException) as error:
            raise LostConnection(str(error)) from None
        finally:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, headers: Mapping[str, str] | None
    ) -> Answer:
        response = self._send(method, path, query, body, headers or {}, self.answer_s)
        try:
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise LostConnection(str(error) or type(error).__name__) from None

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> http.client.HTTPResponse:
        connection = self._connection or self._connect(timeout)
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        target = path + (f"?{urlencode(query, doseq=True)}" if query else "")
        sent = {"Accept": "application/json, */*;q=0.5", **headers}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        if self.token and self.url:
            sent["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, target, data, sent)
            response = connection.getresponse()
            if response.status >= 400:
                raise _problem(response.status, response.read())
            return response
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise LostConnection(str(error) or type(error).__name__) from None

    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self.url:
            parts = urlsplit(self.url)
            kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}.get(parts.scheme)
            if kind is None or not parts.hostname:
                hint = "e.g. http://127.0.0.1:8642"
                raise EjbError(Code.INVALID, f"{self.url!r} is no address of a daemon", where="--url", hint=hint)
            connection = kind(parts.hostname, parts.port, timeout=timeout)
        else:
            connection = _UnixConnection(self.socket_path, timeout or self.answer_s)
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable(error.strerror or str(error)) from None
        self._connection = connection
        return connection

    def _unreachable(self, why: str) -> EjbError:
        hint = "is `ejbd` running? EJB_SOCKET or EJB_URL name another one; `ejb doctor` looks at the site"
        return EjbError(Code.UNREACHABLE, f"no daemon answers: {why}", where=self.place, hint=hint, transient=True)


def segment(text: str) -> str:
    """A name as one segment of a path, whatever it holds."""
    return quote(text, safe="")


def from_environment(url: str | None, socket_path: str | None) -> Client:
    """--url, else --socket, else EJB_URL, else EJB_SOCKET, else the default socket. EJB_TOKEN goes with a URL."""
    if url is None and socket_path is None:
        url, socket_path = os.environ.get("EJB_URL") or None, os.environ.get("EJB_SOCKET") or None
    return Client(url, socket_path, os.environ.get("EJB_TOKEN") or None)


def _problem(status: int, body: bytes) -> EjbError:
    """The error that a problem document tells; anything else is not EJB's."""
    try:
        found = json.loads(body)
        return EjbError(
            Code(found["code"]),
            str(found["detail"]),
            hint=str(found["hint"]),
            where=str(found["where"]),
            transient=bool(found["transient"]),
            details=dict(found["details"]),
        )
    except (ValueError, KeyError, TypeError):
        hint = "is this EJB's address?"
        return EjbError(Code.INTERNAL, f"the daemon answered with status {status} and no explanation", hint=hint)
