"""What each address asks of a caller."""

from __future__ import annotations

import re

from ejbd.wire.rights import Scope

PAGES = "/web/"
_LOOKS = frozenset({"GET", "HEAD"})
_ONLY_LOOKED_AT = frozenset({"/v1/jobs/plan", "/v1/workflows/check"})  # posted, but nothing is kept
_OPERATORS = re.compile(r"/v1/(queues|drains)(/.*)?")
_ADMINISTRATORS = re.compile(r"/v1/(doctor|audit)")


def needed(method: str, path: str) -> Scope:
    """The least scope with which a request may be made. A page asks what REST's address of the same name asks.

    Which users' jobs, tokens and histories it may be about is up to the handler, by the same scope.
    """
    if path.startswith(PAGES):
        path = "/v1/" + path.removeprefix(PAGES)
    if _ADMINISTRATORS.fullmatch(path):
        return Scope.ADMIN
    if only_looks(method, path):
        return Scope.READ
    return Scope.OPERATE if _OPERATORS.fullmatch(path) else Scope.SUBMIT


def only_looks(method: str, path: str) -> bool:
    """Whether nothing is kept, and nothing done, by such a request."""
    return method in _LOOKS or path in _ONLY_LOOKED_AT
