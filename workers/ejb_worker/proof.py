"""Proofs that both ends of the wire know the subjob's secret, which itself is never sent (docs/worker-protocol.md)."""

from __future__ import annotations

import importlib
from typing import Any, Callable


def _sha256() -> Callable[[bytes], Any]:
    """The interpreter's own SHA-256: hashlib would load OpenSSL, some milliseconds and megabytes."""
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            found: Callable[[bytes], Any] = importlib.import_module(name).sha256
        except (ImportError, AttributeError):
            continue
        return found
    raise ImportError("this Python has no SHA-256")


sha256 = _sha256()
_BLOCK = 64
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))


def digest(data: bytes) -> str:
    return str(sha256(data).hexdigest())


def mac(secret: str, *parts: str) -> str:
    """HMAC-SHA256 (RFC 2104) of the parts, a line each, in hexadecimal."""
    key = secret.encode("utf-8")
    if len(key) > _BLOCK:
        key = sha256(key).digest()
    key = key.ljust(_BLOCK, b"\0")
    inner = sha256(key.translate(_INNER) + "\n".join(parts).encode("utf-8")).digest()
    return str(sha256(key.translate(_OUTER) + inner).hexdigest())


def same(one: str, other: str) -> bool:
    """Whether two texts are equal, in a time that does not tell where they differ."""
    if len(one) != len(other):
        return False
    difference = 0
    for left, right in zip(one, other):
        difference |= ord(left) ^ ord(right)
    return difference == 0


def of_request(secret: str, method: str, target: str, session: str, count: int, body: bytes) -> "tuple[str, str]":
    """The proof of a request, and the digest of its body. `target`: path and query as they are sent."""
    content = digest(body)
    return mac(secret, "ejb request", method, target, session, str(count), content), content


def of_answer(secret: str, request: str, status: int, session: str, body: bytes) -> str:
    """The proof of an answer to the request with the proof `request`; `session` is the one offered, or ""."""
    return mac(secret, "ejb answer", request, str(status), session, digest(body))
