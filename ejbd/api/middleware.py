"""Around every request: a limit on its body, and an end to errors that were not expected."""

from __future__ import annotations

import contextlib
import hashlib

import structlog
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ejbd.api.access.allowance import SMALL_BYTES, Allowances
from ejbd.api.auth import Principal, principal_of
from ejbd.api.bodies import Values
from ejbd.api.port import ManagerPort
from ejbd.api.problems import internal, problem
from ejbd.errors import Code, EjbError
from ejbd.wire.rights import Scope as Reach

log = structlog.get_logger(__name__)


_TOO_LARGE_HINT = "leave large data in files, or raise limits.max_body_bytes"


_LOOKING_BYTES = 256 * 1024
_LARGE_ROUTES = (
    "/v1/jobs",
    "/v1/jobs/plan",
    "/v1/worker/reports",
    "/v1/history",
    "/v1/workflows",
    "/v1/workflows/check",
)
_SINGLE = frozenset({b"authorization", b"content-type", b"idempotency-key", b"last-event-id", b"x-ejb-protocol"})
_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
_BODIES = frozenset({"POST", "PUT", "PATCH"})
# Answers are of one caller, and change: nothing on their way keeps them, or takes them for another kind of text.
_OF_ANSWERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_JOBS = frozenset({"/v1/jobs", "/v1/jobs/plan"})
_OF_JOBS = _JOBS | {"/v1/history"}  # for users that this daemon runs jobs for


class Guard:
    """Reads the bodies of users that are known and may use the route, and none that is larger than the route can need.

    A body is bounded: by `max_body_bytes` for jobs, 2 MiB for workers' reports, 256 KiB for a token that only reads,
    64 KiB for the rest. Of one user's longer ones two are read at a time. Above its bound a body is refused, by its
    stated length without reading it and otherwise when it passes that. A bug is answered with a problem document that
    tells nothing about the inside; the log has it all.
    """

    def __init__(self, app: ASGIApp, manager: ManagerPort) -> None:
        self.app = app
        self.manager = manager
        self.most = manager.settings.limits.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        read, is_large, turn = 0, False, contextlib.AsyncExitStack()
        values, content = Values(), hashlib.sha256()
        caller: Principal | None = None
        allowances: Allowances = scope["app"].state.allowances
        most = self.most if scope["path"] in _LARGE_ROUTES else min(self.most, SMALL_BYTES)

        async def counted() -> Message:
            nonlocal read, is_large
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > most:
                    # FastAPI lets its own kind of exception alone while it reads a body, and hides every other.
                    raise HTTPException(413, _sentence(most))
                if read > SMALL_BYTES and caller is not None and not is_large:
                    is_large = True
                    await turn.enter_async_context(allowances.large.take("" if caller.admin else caller.user))
                content.update(message.get("body", b""))
                proved = scope.get("state", {}).get("content")
                if proved not in (None, content.hexdigest()) and not message.get("more_body"):
                    raise HTTPException(401, "the body is not the one that was proved")
                values.feed(message.get("body", b""))
                if refused := values.too_many:
                    raise HTTPException(422, refused)
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _OF_ANSWERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            if _stated_length(scope) > most:
                raise EjbError(Code.TOO_LARGE, _sentence(most), hint=_TOO_LARGE_HINT)
            _once(scope)
            if scope["method"] not in _LOOKS:
                self.manager.refuse_if_closed()
            if scope["method"] in _BODIES and "subjob" not in scope.get("state", {}):
                caller = await principal_of(Request(scope))
                most = self._most_of(caller, scope["path"], most)
                if _stated_length(scope) > most:
                    raise EjbError(Code.TOO_LARGE, _sentence(most), hint=_TOO_LARGE_HINT)
        except EjbError as refused:
            await problem(refused, headers={"Connection": "close"})(scope, receive, watched)
            return
        try:
            await self.app(scope, counted, watched)
        except Exception:
            log.exception("api.failed", method=scope["method"], path=scope["path"])
            if started:
                raise  # half an answer is out: all that is left is to cut the connection
            await internal()(scope, receive, watched)
        finally:
            await turn.aclose()

    def _most_of(self, caller: Principal, path: str, most: int) -> int:
        """Bytes that a caller may send there. Raises EjbError (FORBIDDEN) for a user that has no jobs run here."""
        if path in _JOBS or (path in _OF_JOBS and not caller.admin):
            self.manager.refuse_others(caller.user)
        return min(most, _LOOKING_BYTES) if caller.scope is Reach.READ else most


def _once(scope: Scope) -> None:
    """Of a header that comes twice one would be taken and the other left out in silence. Raises EjbError (INVALID)."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _SINGLE and found.setdefault(name, value) != value:
            where = name.decode().title()
            raise EjbError(Code.INVALID, "this header is given twice, with two values", where=where, hint="send one")


def _sentence(most: int) -> str:
    return f"the body of a request may have {most} bytes at most here"


def _stated_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
