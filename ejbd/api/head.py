"""HEAD wherever GET is: the same status and headers, no body, and no stream that goes on unseen."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _HeadIsOut(OSError):
    """Raised into the application once its headers are sent: what it would say further reaches no client."""


class Head:
    """Answers HEAD as GET would, and ends the answer after its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        out = False

        async def head_only(message: Message) -> None:
            nonlocal out
            if message["type"] == "http.response.start":
                await send(message)
                out = True
            elif message["type"] == "http.response.body":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadIsOut

        try:
            await self.app({**scope, "method": "GET"}, receive, head_only)
        except Exception:
            if not out:
                raise
