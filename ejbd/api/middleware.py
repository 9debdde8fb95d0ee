"""Around every request: a limit on its body, and an end to errors that nobody expected."""

from __future__ import annotations

import re

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ejbd.api.auth import principal_of
from ejbd.api.problems import internal, problem
from ejbd.errors import Code, EjbError

log = structlog.get_logger(__name__)


_TOO_LARGE_HINT = "leave large data in files, or raise limits.max_body_bytes"


_SMALL_BYTES = 64 * 1024
_LARGE_ROUTES = ("/v1/jobs", "/v1/jobs/plan", "/v1/worker/reports", "/v1/history")
_BODIES = frozenset({"POST", "PUT", "PATCH"})
_OPENERS = re.compile(rb"(?:[\[{]\s*){64}")
_MOST_BRACKETS = 200_000
_NESTED = "the body holds too many values inside each other"


class Guard:
    """Reads no body of anybody who does not say who he is, and none that is larger than its route can need.

    Above `max_body_bytes` for jobs and workers' reports, 64 KiB for the rest, a body is refused, by its stated length
    without reading it and otherwise when it passes that. A bug is answered with a problem document that tells nothing
    about the inside; the log has it all.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self.app = app
        self.most = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        read = brackets = 0
        most = self.most if scope["path"] in _LARGE_ROUTES else min(self.most, _SMALL_BYTES)

        async def counted() -> Message:
            nonlocal read, brackets
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > most:
                    # FastAPI lets its own kind of exception alone while it reads a body, and hides every other.
                    raise HTTPException(413, _sentence(most))
                brackets += _brackets(message.get("body", b""))
                if brackets > _MOST_BRACKETS:
                    raise HTTPException(422, _NESTED)
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        if _stated_length(scope) > most:
            error = EjbError(Code.TOO_LARGE, _sentence(most), hint=_TOO_LARGE_HINT)
            await problem(error)(scope, receive, send)
            return
        if scope["method"] in _BODIES and "subjob" not in scope.get("state", {}):
            try:
                await principal_of(Request(scope))
            except EjbError as nobody:
                await problem(nobody, headers={"Connection": "close"})(scope, receive, send)
                return
        try:
            await self.app(scope, counted, watched)
        except Exception:
            log.exception("api.failed", method=scope["method"], path=scope["path"])
            if started:
                raise  # half an answer is out: all that is left is to cut the connection
            await internal()(scope, receive, send)


def _sentence(most: int) -> str:
    return f"the body of a request may have {most} bytes at most here"


def _brackets(piece: bytes) -> int:
    """How many values a part of a body opens; too many where it opens one in the other, as no request of ours does."""
    return _MOST_BRACKETS + 1 if _OPENERS.search(piece) else piece.count(b"[") + piece.count(b"{")


def _stated_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
