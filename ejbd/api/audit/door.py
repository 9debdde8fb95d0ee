"""Around every request of a user: a line of the audit for what it did, or was refused."""

from __future__ import annotations

import json
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ejbd.api.access.needs import only_looks
from ejbd.api.audit.records import MOST_FAILURES_S, line
from ejbd.api.audit.trail import Trail
from ejbd.api.auth import Principal
from ejbd.api.problems import MEDIA_TYPE, problem
from ejbd.api.worker_door import PREFIX
from ejbd.errors import EjbError

_REFUSED = frozenset({401, 403, 429})


class AuditDoor:
    """Keeps a line of each act, of each refusal, and of each look at what another user owns.

    It is kept before the answer is sent. Workers' calls are no acts of users. Of requests that do not say which user
    sends them only some a second are kept one by one: no other could fill the disk with them.
    """

    def __init__(self, app: ASGIApp, trail: Trail | None) -> None:
        self.app = app
        self.trail = trail
        self._second, self._failures, self._left_out = 0, 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.trail is None or scope["type"] != "http" or scope["path"].startswith(PREFIX):
            await self.app(scope, receive, send)
            return
        trail = self.trail
        acts = not only_looks(scope["method"], scope["path"])
        if acts:
            try:
                trail.refuse_unkept(lambda: line(scope, 0, "", "", act="audit kept again"))
            except EjbError as error:
                await problem(error, headers={"Connection": "close"})(scope, receive, send)
                return
        start: Message = {}
        told = False

        def tell(status: int, code: str, location: str) -> None:
            nonlocal told
            told = True
            if self._is_kept(scope, acts, status):
                trail.tell(line(scope, status, code, location, left_out=self._left_out))
                self._left_out = 0

        async def watched(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                if start["status"] >= 400:
                    return  # its code stands in the body
                tell(start["status"], "", Headers(raw=start["headers"]).get("location", ""))
            elif not told:
                is_problem = Headers(raw=start["headers"]).get("content-type") == MEDIA_TYPE
                tell(start["status"], _code(message.get("body", b"")) if is_problem else "", "")
                await send(start)
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            if not told:
                tell(0, "", "")

    def _is_kept(self, scope: Scope, acts: bool, status: int) -> bool:
        principal: Principal | None = scope.get("state", {}).get("asker")
        if principal is not None:
            others = principal.touched.user not in (None, principal.user)
            return acts or others or status in _REFUSED
        if status not in _REFUSED:
            return False
        if int(time.time()) != self._second:
            self._second, self._failures = int(time.time()), 0
        self._failures += 1
        if self._failures > MOST_FAILURES_S:
            self._left_out += 1
            return False
        return True


def _code(body: bytes) -> str:
    try:
        found: Any = json.loads(body)
        return str(found["code"])
    except (ValueError, KeyError, TypeError):
        return ""
