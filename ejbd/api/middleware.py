"""Around every request: a limit on its body, and an end to errors that nobody expected."""

from __future__ import annotations

import structlog
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ejbd.api.problems import internal, problem
from ejbd.errors import Code, EjbError

log = structlog.get_logger(__name__)


_TOO_LARGE_HINT = "leave large data in files, or raise limits.max_body_bytes"


class Guard:
    """Refuses bodies above `max_body_bytes` (by their stated length without reading them, otherwise when they pass it),
    and answers a bug with a problem document that tells nothing about the inside; the log has it all."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self.app = app
        self.most = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > self.most:
                    # FastAPI lets its own kind of exception alone while it reads a body, and hides every other.
                    raise HTTPException(413, self._sentence())
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        if _stated_length(scope) > self.most:
            error = EjbError(Code.TOO_LARGE, self._sentence(), hint=_TOO_LARGE_HINT)
            await problem(error)(scope, receive, send)
            return
        try:
            await self.app(scope, counted, watched)
        except Exception:
            log.exception("api.failed", method=scope["method"], path=scope["path"])
            if started:
                raise  # half an answer is out: all that is left is to cut the connection
            await internal()(scope, receive, send)

    def _sentence(self) -> str:
        return f"the body of a request may have {self.most} bytes at most"


def _stated_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
