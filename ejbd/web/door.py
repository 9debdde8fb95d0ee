"""Around every answer of the page: what a browser may do with it, and errors as pages."""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ejbd.api.access.needs import PAGES
from ejbd.api.problems import MEDIA_TYPE
from ejbd.web.render import html

POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""No script, style or picture of another address, and none that stands in the page itself."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageDoor:
    """Adds the headers; a problem document becomes a page that says the same sentence."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == "/" or scope["path"].startswith(PAGES)):
            await self.app(scope, receive, send)
            return
        start: Message = {}
        told = b""

        async def watched(message: Message) -> None:
            nonlocal start, told
            if message["type"] == "http.response.start":
                start = message
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in HEADERS.items():
                    headers[name] = value
                static = scope["path"].startswith(PAGES + "static/")
                headers["Cache-Control"] = "max-age=86400" if static else "no-store"
                if headers.get("content-type") != MEDIA_TYPE:
                    await send(message)
                return
            headers = MutableHeaders(raw=start["headers"])
            if headers.get("content-type") != MEDIA_TYPE:
                await send(message)
                return
            told += message.get("body", b"")
            if message.get("more_body"):
                return
            by_provider = getattr(scope["app"].state, "sign_ins", None) is not None
            page = _page(told, start["status"], by_provider)
            headers["content-type"] = "text/html; charset=utf-8"
            if "content-length" in headers:
                headers["content-length"] = str(len(page))
            await send(start)
            await send({"type": "http.response.body", "body": page})

        await self.app(scope, receive, watched)


def _page(told: bytes, status: int, by_provider: bool) -> bytes:
    found: dict[str, Any] = json.loads(told) if told else {}
    template = "signin.html" if status == 401 else "error.html"
    return html(template, None, status=status, problem=found, by_provider=by_provider).body  # type: ignore[return-value]
