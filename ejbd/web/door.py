"""Around every answer of the page: what a browser may do with it, and errors as pages."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ejbd.api.access.needs import PAGES
from ejbd.api.port import ManagerPort
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


POLL_S = 2.0  # for so long at most: a poll that lasts keeps no page from what is known
WAITED = "X-EJB-Waited"
"""Seconds for which an answer waited for a poll: a page does not count them as what its look cost."""

PREFIX_HEADER = b"x-forwarded-prefix"
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){1,8}")
_COOKIE_PATH = re.compile(r"(; *path=)/", re.I)


class PageDoor:
    """Adds the headers; a problem document becomes a page that says the same sentence.

    Behind a proxy that serves the page below a prefix, and says so, all addresses of an answer begin with it. What the
    header says is heard by the one that sent it alone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == "/" or scope["path"].startswith(PAGES)):
            await self.app(scope, receive, send)
            return
        waited_s = await _wait(scope)
        start: Message = {}
        told = b""
        prefix = _prefix(scope)

        async def watched(message: Message) -> None:
            nonlocal start, told
            if message["type"] == "http.response.start":
                start = message
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in HEADERS.items():
                    headers[name] = value
                if waited_s:
                    headers[WAITED] = f"{waited_s:.3f}"
                static = scope["path"].startswith(PAGES + "static/")
                headers["Cache-Control"] = "max-age=86400" if static else "no-store"
                if prefix:
                    message["headers"] = [_below(prefix, name, value) for name, value in message["headers"]]
                if not _is_changed(headers, prefix):
                    await send(message)
                return
            headers = MutableHeaders(raw=start["headers"])
            if not _is_changed(headers, prefix):
                await send(message)
                return
            told += message.get("body", b"")
            if message.get("more_body"):
                return
            page = told
            if headers.get("content-type") == MEDIA_TYPE:
                by_provider = getattr(scope["app"].state, "sign_ins", None) is not None
                page = _page(told, start["status"], by_provider)
                headers["content-type"] = "text/html; charset=utf-8"
            if prefix:
                # In a page what users named has no quotation mark, so that these are attributes.
                page = page.replace(b'="/', f'="{prefix}/'.encode()).replace(b'url=/"', f'url={prefix}/"'.encode())
            if "content-length" in headers:
                headers["content-length"] = str(len(page))
            await send(start)
            await send({"type": "http.response.body", "body": page})

        await self.app(scope, receive, watched)


async def _wait(scope: Scope) -> float:
    """A page that is open looks anew between polls, so that a poll is as fast as without it; the seconds it waited."""
    if (b"hx-request", b"true") not in scope["headers"]:
        return 0.0
    manager: ManagerPort = scope["app"].state.manager
    begun = time.monotonic()
    await manager.between_polls(POLL_S)
    return time.monotonic() - begun


def _prefix(scope: Scope) -> str:
    """What the proxy in front serves the page below; "" where that is nothing, or is no such thing."""
    told = next((value for name, value in scope["headers"] if name == PREFIX_HEADER), b"").decode("latin-1").rstrip("/")
    return told if _PREFIX.fullmatch(told) and not {".", ".."} & set(told.split("/")) else ""


def _below(prefix: str, name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A header of an answer, where its address or its cookie's path is the daemon's own."""
    text = value.decode("latin-1")
    if name.lower() == b"location" and text.startswith("/"):
        text = prefix + text
    elif name.lower() == b"set-cookie":
        text = _COOKIE_PATH.sub(rf"\g<1>{prefix}/", text)
    return name, text.encode("latin-1")


def _is_changed(headers: MutableHeaders, prefix: str) -> bool:
    """Whether an answer's text is, and is sent once it is whole."""
    told = headers.get("content-type", "")
    return told == MEDIA_TYPE or bool(prefix and told.startswith("text/html"))


def _page(told: bytes, status: int, by_provider: bool) -> bytes:
    found: dict[str, Any] = json.loads(told) if told else {}
    template = "signin.html" if status == 401 else "error.html"
    return html(template, None, status=status, problem=found, by_provider=by_provider).body  # type: ignore[return-value]
