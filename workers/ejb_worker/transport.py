"""Talking to the manager: one thread waits for operations, another sends reports and heartbeats."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set
from urllib.parse import urlsplit

from . import PROTOCOL
from .proof import of_answer, of_request, same
from .reports import ReportBuffer
from .settings import Subjob, manager_url

_BACKOFF_FIRST_S = 0.2
_BACKOFF_MOST_S = 5.0
_UNWANTED_AFTER = 3
_MOST_TOLD = 20  # kinds of trouble, between two answers
_NO_SESSION = "-"
_LARGEST_ANSWER = 64 << 20
_ANSWER_S = 15.0  # how long an answer may take beyond the wait that was asked for

Operation = Dict[str, Any]


class Away(Exception):
    """The manager did not answer, or not sensibly: try again later."""


class Unwanted(Exception):
    """401 or 403: this subjob is no longer wanted."""


class Rejected(Exception):
    """400, 413 or 422: the manager cannot take this request whatever happens later."""


class Unknown(Exception):
    """404: the manager does not know this worker (any more); it registers again."""


class Client:
    """One keep-alive connection. Not thread-safe: each thread has its own. Reads `manager.json` at each connection."""

    def __init__(self, subjob: Subjob) -> None:
        self._subjob = subjob
        self._connection: Any = None
        self._session = _NO_SESSION
        self._count = 0

    def request(self, method: str, path: str, body: Optional[Dict[str, Any]] = None, wait_s: float = 0.0) -> Any:
        """The decoded answer. Raises Away, Unwanted, Rejected, Unknown.

        An answer without the manager's proof counts for nothing, whatever it says: another program may have its
        address.
        """
        return _decoded(*self.answer(method, path, body, wait_s))

    def answer(
        self, method: str, path: str, body: Optional[Dict[str, Any]] = None, wait_s: float = 0.0
    ) -> "tuple[int, bytes]":
        """The status and the content of a proved answer. Raises Away."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode("ascii")
        status, content, offered = self._exchange(method, path, data, wait_s)
        if offered:  # the manager has never seen our session: it was started since, or we were
            self._session, self._count = offered, 0
            status, content, offered = self._exchange(method, path, data, wait_s)
            if offered:
                raise Away("the manager takes no session")
        return status, content

    def _exchange(self, method: str, path: str, data: Optional[bytes], wait_s: float) -> "tuple[int, bytes, str]":
        """Status and content of an answer that the manager has proved, and the session that it offers, or ""."""
        self._count += 1
        secret = self._subjob.secret
        proof, content_digest = of_request(secret, method, path, self._session, self._count, data or b"")
        claim = (self._subjob.subjob, self._session, self._count, content_digest, proof)
        headers = {
            "Authorization": "EJB-HMAC-SHA256 %s %s %d %s %s" % claim,
            "X-EJB-Protocol": str(PROTOCOL),
            "Accept": "application/json",
        }
        if data is not None:
            headers["Content-Type"] = "application/json"
        http_client = sys.modules.get("http.client")
        failures = (OSError, ValueError) + ((http_client.HTTPException,) if http_client else ())
        try:
            connection = self._connect()
            http_client = sys.modules["http.client"]
            failures = (OSError, ValueError, http_client.HTTPException)
            connection.sock.settimeout(wait_s + _ANSWER_S)
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            status, content = response.status, response.read(_LARGEST_ANSWER + 1)
            if len(content) > _LARGEST_ANSWER:
                raise ValueError("an answer without end")
            shown = response.getheader("X-EJB-Proof") or ""
            offered = response.getheader("X-EJB-Session") or ""
            if connection.sock is None:  # closed behind its answer
                self._connection = None
        except failures as error:
            self.close()
            raise Away("%s: %s" % (type(error).__name__, error)) from None
        if not same(shown, of_answer(secret, proof, status, offered, content)):
            self.close()
            words = content[:300].decode("utf-8", "replace") if status >= 400 else ""
            raise Away(("answer %d without the manager's proof %s" % (status, words)).rstrip())
        return status, content, offered

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> Any:
        if self._connection is None:
            url = urlsplit(manager_url(self._subjob.spool))
            client = _http_client(url.scheme == "https")
            kind = client.HTTPSConnection if url.scheme == "https" else client.HTTPConnection
            connection = kind(url.hostname, url.port, timeout=_ANSWER_S)
            connection.connect()
            self._connection = connection
        return self._connection


def _decoded(status: int, content: bytes) -> Any:
    if status in (401, 403):
        raise Unwanted("%d" % status)
    if status == 404:
        raise Unknown("%d" % status)
    if status in (400, 413, 422):
        raise Rejected("%d %s" % (status, content[:300].decode("utf-8", "replace")))
    if status != 200:
        raise Away("answer %d" % status)
    try:
        answer = json.loads(content.decode("utf-8"))
    except ValueError:
        raise Away("an answer that is not JSON") from None
    if not isinstance(answer, dict):
        raise Away("an answer that is not an object")
    return answer


_import_lock = threading.Lock()


def _http_client(secure: bool) -> Any:
    """The module http.client, without TLS where it is not needed: that alone is 4 MB of resident memory."""
    with _import_lock:
        module = sys.modules.get("http.client")
        if module is None and not secure and "ssl" not in sys.modules:
            sys.modules["ssl"] = None  # type: ignore[assignment]  # makes "import ssl" raise ImportError
            try:
                return importlib.import_module("http.client")
            finally:
                del sys.modules["ssl"]
        if module is None:
            return importlib.import_module("http.client")
        if secure and not hasattr(module, "HTTPSConnection"):
            return importlib.reload(module)
        return module


class Backoff:
    """0.2 s doubling to 5 s, a little apart for each worker."""

    def __init__(self) -> None:
        self._next = _BACKOFF_FIRST_S

    def reset(self) -> None:
        self._next = _BACKOFF_FIRST_S

    def next(self) -> float:
        seconds, self._next = self._next, min(_BACKOFF_MOST_S, self._next * 2)
        return seconds * (0.8 + 0.4 * os.urandom(1)[0] / 255)


class Transport:
    """What begins with `on_` is called in a thread of the transport: the receiver hands it to its own."""

    def __init__(
        self,
        subjob: Subjob,
        buffer: ReportBuffer,
        hello: Dict[str, Any],
        *,
        on_registered: Callable[[], None],
        on_operations: Callable[[List[Operation]], None],
        on_unwanted: Callable[[], None],
        on_away: Callable[[], None],
        answered: Callable[[], int],
        log: Callable[[str], None],
    ) -> None:
        self._subjob = subjob
        self._buffer = buffer
        self._hello = hello
        self._on_registered = on_registered
        self._on_operations = on_operations
        self._on_unwanted = on_unwanted
        self._on_away = on_away
        self._away_since: Optional[float] = None
        self._answered = answered
        self._log = log
        self._closing = threading.Event()
        self._registered = threading.Event()
        self._worker = ""
        self._heartbeat_s = 5.0
        self._poll_s = 20.0
        self._newest = 0
        self._refusals = 0
        self._refusals_lock = threading.Lock()
        self._poller = threading.Thread(target=self._poll_loop, name="operations", daemon=True)
        self._sender = threading.Thread(target=self._send_loop, name="reports", daemon=True)

    def start(self) -> None:
        self._poller.start()
        self._sender.start()

    def close(self) -> None:
        """Stop both threads as soon as they look; they are daemons and are not waited for."""
        self._closing.set()
        self._registered.set()
        self._buffer.hurry()

    def away_s(self) -> Optional[float]:
        """For how long no manager has answered (seconds); None: the last call was answered. Any thread."""
        since = self._away_since
        return None if since is None else time.monotonic() - since

    def _poll_loop(self) -> None:
        client = Client(self._subjob)
        backoff = Backoff()
        away: Set[str] = set()  # why, as logged since it answered last
        while not self._closing.is_set():
            asked = started = time.monotonic()
            try:
                if not self._registered.is_set():
                    self._register(client)
                    self._away_since = None
                started = time.monotonic()
                operations = self._ask(client)
                self._away_since = None
                if away:
                    self._log("the manager answers again")
                    away.clear()
                backoff.reset()
                self._wanted()
                newest = max((int(operation["seq"]) for operation in operations), default=0)
                if operations:
                    self._on_operations(operations)
                if newest <= self._newest and time.monotonic() - started < 0.05:
                    self._closing.wait(0.5)  # a manager that answers at once with nothing new is not hammered
                self._newest = max(self._newest, newest)
            except Unknown:
                self._away_since = None
                self._registered.clear()
                self._closing.wait(backoff.next())
            except Unwanted:
                self._away_since = None
                self._refused()
                self._closing.wait(backoff.next())
            except (Away, Rejected) as error:
                client.close()
                self._registered.clear()
                if self._away_since is None:
                    self._away_since = asked
                    self._on_away()
                if str(error) not in away and len(away) < _MOST_TOLD:
                    self._log("the manager is away (%s); the application goes on" % error)
                    away.add(str(error))
                self._closing.wait(backoff.next())
        client.close()

    def _register(self, client: Client) -> None:
        accepted = self._buffer.last_accepted()
        hello = {**self._hello, "accepted": accepted} if accepted else self._hello
        answer = client.request("POST", "/v1/worker/register", hello)
        try:
            self._worker = str(answer["worker"])
            self._heartbeat_s = float(answer["heartbeat_s"])
            self._poll_s = float(answer["poll_s"])
        except (KeyError, TypeError, ValueError):
            raise Away("an answer to register without worker, heartbeat_s or poll_s") from None
        self._registered.set()
        self._on_registered()

    def _ask(self, client: Client) -> List[Operation]:
        path = "/v1/worker/operations?worker=%s&after=%d&wait=%g" % (self._worker, self._answered(), self._poll_s)
        operations = client.request("GET", path, wait_s=self._poll_s).get("operations")
        if not isinstance(operations, list) or not all(
            isinstance(operation, dict) and isinstance(operation.get("seq"), int) for operation in operations
        ):
            raise Away("an answer without operations")
        return operations

    def _send_loop(self) -> None:
        client = Client(self._subjob)
        backoff = Backoff()
        while True:
            self._registered.wait()
            if self._closing.is_set():
                break
            self._buffer.wait(self._heartbeat_s)
            try:
                self._send(client, self._buffer.batch())
                backoff.reset()
                self._wanted()
            except Unknown:
                self._registered.clear()
            except Unwanted:
                self._refused()
                self._closing.wait(backoff.next())
            except (Away, Rejected):
                client.close()
                self._closing.wait(backoff.next())
        client.close()

    def _send(self, client: Client, reports: List[Dict[str, Any]]) -> None:
        try:
            answer = client.request("POST", "/v1/worker/reports", {"worker": self._worker, "reports": reports})
        except Rejected as error:
            if not reports:
                raise
            if len(reports) > 1:
                # One of them cannot be taken: it must not hold up the others.
                for report in reports:
                    self._send(client, [report])
                return
            if reports[0]["kind"] == "log":
                raise
            self._buffer.give_up(reports[0]["n"], "a report of kind %s was refused: %s" % (reports[0]["kind"], error))
            self._log("the manager refused report %s: %s" % (reports[0], error))
            return
        accepted = answer.get("accepted")
        if not isinstance(accepted, int):
            raise Away("an answer to reports without accepted")
        self._buffer.accepted(accepted)

    def _wanted(self) -> None:
        with self._refusals_lock:
            self._refusals = 0

    def _refused(self) -> None:
        with self._refusals_lock:
            self._refusals += 1
            enough = self._refusals == _UNWANTED_AFTER
        if enough:
            self._on_unwanted()
