"""The worker's end of the proofs, for clients that are no workers (docs/worker-protocol.md)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Generator
from typing import Any

import httpx

from ejbd.manager.protocol import proofs
from ejbd.manager.protocol.worker_models import PROTOCOL

NO_SESSION = "-"


class Proving(httpx.Auth):
    """Proves every request, takes the session that it is offered, and believes no answer without a proof.

    For `requests` (schemathesis) it is an auth as well, once it has a session.
    """

    requires_request_body = True
    requires_response_body = True

    def __init__(self, subjob: str, secret: str) -> None:
        self.subjob, self.secret = subjob, secret
        self.session, self.count = NO_SESSION, 0
        self.believed: bool | None = None  # whether the last answer was proved

    def header(self, method: str, target: str, body: bytes) -> str:
        self.count += 1
        content = hashlib.sha256(body).hexdigest()
        said = "\n".join(("ejb request", method, target, self.session, str(self.count), content))
        proof = hmac.new(self.secret.encode(), said.encode(), hashlib.sha256).hexdigest()
        return f"{proofs.SCHEME} {self.subjob} {self.session} {self.count} {content} {proof}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        for _ in range(2):
            header = self.header(request.method, request.url.raw_path.decode().removesuffix("?"), request.content)
            request.headers["Authorization"] = header
            request.headers.setdefault("X-EJB-Protocol", PROTOCOL)
            response = yield request
            offered = response.headers.get(proofs.SESSION_HEADER, "")
            claim = proofs.claim_of(header)
            assert claim is not None
            proof = proofs.answer_proof(self.secret, claim, response.status_code, offered, response.content)
            self.believed = proof == response.headers.get(proofs.PROOF_HEADER)
            if not (offered and self.believed):
                return
            self.session, self.count = offered, 0

    def __call__(self, request: Any) -> Any:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        request.headers["Authorization"] = self.header(request.method, request.path_url.removesuffix("?"), body)
        return request
