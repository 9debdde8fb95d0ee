"""The door that workers come in by: a request is proved before its body is read, and an answer proves itself.

What cannot be proved gets an answer without a proof, which no worker believes (docs/worker-protocol.md).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ejbd.api.access.allowance import SMALL_BYTES, Allowances
from ejbd.api.access.tokenproofs import target_of
from ejbd.api.port import ManagerPort
from ejbd.api.problems import problem
from ejbd.api.shares import WORKERS
from ejbd.errors import Code, EjbError
from ejbd.manager.protocol import proofs
from ejbd.manager.protocol.proofs import Claim
from ejbd.manager.protocol.worker_models import PROTOCOL
from ejbd.store.turns import ASKER, UserTurns

PREFIX = "/v1/worker/"
MOST_BYTES = 2 << 20  # of a request: a worker sends what is more one report at a time
AT_ONCE = 8  # requests of one subjob with a body that are carried out at a time; its others wait


class WorkerDoor:
    """Lets workers alone through to `PREFIX`. `scope["state"]["subjob"]` then has the worker's subjob."""

    def __init__(self, app: ASGIApp, manager: ManagerPort, max_body_bytes: int) -> None:
        self.app = app
        self.manager = manager
        self.most = min(max_body_bytes, MOST_BYTES)
        self.sessions = proofs.Sessions()
        self._proved_before: OrderedDict[str, str] = OrderedDict()
        self._turns = UserTurns(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self.app(scope, receive, send)
            return
        try:
            claim, secret = await self._proved(scope)
        except EjbError as error:
            await problem(error, headers={"Connection": "close"})(scope, receive, send)
            return
        try:
            body = await self._body(receive, scope["app"].state.allowances, WORKERS + claim.subjob)
        except EjbError as error:
            await problem(error, headers={"Connection": "close"})(scope, receive, _Proving(send, claim, secret, ""))
            return
        if body is None:
            return  # the worker has gone
        if hashlib.sha256(body).hexdigest() != claim.content:
            wrong = EjbError(Code.UNAUTHENTICATED, "the body is not the one that the worker proved")
            await problem(wrong, headers={"Connection": "close"})(scope, receive, send)
            return
        offer = "" if self.sessions.accept(claim) else self.sessions.offer(claim.subjob)
        answer = _Proving(send, claim, secret, offer)
        if offer:
            unknown = EjbError(Code.UNAUTHENTICATED, "this session is not known here, or went on without this request")
            await problem(unknown)(scope, receive, answer)
            return
        state = scope.setdefault("state", {})
        state["subjob"] = claim.subjob
        ASKER.set(WORKERS + claim.subjob)  # its reads and writes take turns with those of others
        if (connection := state.get("connection")) is not None:
            connection.is_of(WORKERS + claim.subjob)
        if not body:  # it waits for work
            await self.app(scope, _Again(body, receive), answer)
            return
        async with self._turns.take(claim.subjob):
            await self.app(scope, _Again(body, receive), answer)

    async def _body(self, receive: Receive, allowances: Allowances, sender: str) -> bytes | None:
        parts: list[bytes] = []
        length = 0
        async with contextlib.AsyncExitStack() as turn:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                is_large = length > SMALL_BYTES
                parts.append(message.get("body", b""))
                length += len(parts[-1])
                if length > self.most:
                    raise EjbError(Code.TOO_LARGE, f"the body of a request may have {self.most} bytes at most")
                if length > SMALL_BYTES and not is_large:
                    await turn.enter_async_context(allowances.large.take(sender))
                if not message.get("more_body", False):
                    return b"".join(parts)

    async def _proved(self, scope: Scope) -> tuple[Claim, str]:
        headers = Headers(scope=scope)
        header = headers.get("authorization", "")
        spoken = headers.get("x-ejb-protocol")
        if spoken is not None and spoken != PROTOCOL:
            message = (
                f"this daemon speaks worker protocol {PROTOCOL}, and this worker, which an earlier daemon started, "
                f"speaks {spoken[:8]!a}"
            )
            hint = "its job goes on from its last checkpoint, on workers that the present daemon starts"
            raise EjbError(Code.INVALID, message, where="X-EJB-Protocol", hint=hint)
        claim = proofs.claim_of(header)
        if claim is None:
            raise EjbError(Code.UNAUTHENTICATED, "a worker has to prove that it knows the secret of its subjob")
        return claim, await self._secret_of(claim, scope["method"], target_of(scope))

    async def _secret_of(self, claim: Claim, method: str, target: str) -> str:
        """The secret by which this claim holds. One that held before is not looked up again: it is in each request.

        Whether its subjob is over is no matter here: each call asks that for itself.
        """
        known = self._proved_before.get(claim.subjob)
        if known is not None and proofs.holds(claim, known, method, target):
            self._proved_before.move_to_end(claim.subjob)
            return known
        secret = await self.manager.subjob_secret(claim.subjob)
        if not secret or not proofs.holds(claim, secret, method, target):
            raise EjbError(Code.UNAUTHENTICATED, "this proof is not of a subjob that is known here")
        self._proved_before[claim.subjob] = secret
        if len(self._proved_before) > proofs.MOST_SESSIONS:
            self._proved_before.popitem(last=False)
        return secret


class _Again:
    """A body that was read, for the next reader."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Proving:
    """Keeps an answer until it is whole, and sends it with its proof."""

    def __init__(self, send: Send, claim: Claim, secret: str, session: str) -> None:
        self._send = send
        self._claim, self._secret, self._session = claim, secret, session
        self._start: Message = {}
        self._body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body = b"".join(self._body)
        headers = MutableHeaders(scope=self._start)
        proof = proofs.answer_proof(self._secret, self._claim, self._start["status"], self._session, body)
        headers[proofs.PROOF_HEADER] = proof
        if self._session:
            headers[proofs.SESSION_HEADER] = self._session
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body})
