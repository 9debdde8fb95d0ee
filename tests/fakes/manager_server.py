"""A small manager for tests: it speaks the worker protocol over real HTTP and lets a test hand out operations."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ejbd.manager.protocol import proofs
from ejbd.manager.protocol.worker_models import PROTOCOL

Json = dict[str, Any]


class ManagerServer:
    """Knows one subjob. `reports` holds what was stored (each `n` of a boot once); `status` overrides every answer."""

    def __init__(
        self,
        spool: Path,
        *,
        job: str = "7",
        subjob: str = "7.1",
        secret: str = "secret",
        host: str = "127.0.0.1",
        shared: Path | None = None,
    ) -> None:
        self.spool = spool
        self.host = host
        self.job, self.subjob, self.secret = job, subjob, secret
        self.job_dir = (shared or spool) / "jobs" / job
        self.subjob_dir = self.job_dir / "subjobs" / subjob
        self.subjob_dir.mkdir(parents=True)
        (self.subjob_dir / "subjob.json").write_text(
            json.dumps(
                {
                    "protocol": int(PROTOCOL),
                    "job": job,
                    "subjob": subjob,
                    "secret": secret,
                    "spool": str(spool),
                    "job_dir": str(self.job_dir),
                }
            )
        )
        self.changed = threading.Condition()
        self.registrations: list[Json] = []
        self.workers: dict[str, str] = {}  # boot -> worker id
        self.reports: list[Json] = []
        self.stored: dict[str, int] = {}  # worker id -> highest n
        self.requests: list[Json] = []  # every request with its headers, for the contract test
        self.heartbeats = 0
        self.sessions = proofs.Sessions()
        self.answered: list[tuple[str, int, bytes]] = []  # proof, status and body of every answer
        self.status: int | None = None
        self.refuse_report: Callable[[Json], bool] = lambda report: False
        self.redeliver = False  # hand out again what was handed out before
        self.heartbeat_s = 0.5
        self.poll_s = 2.0
        self._operations: list[Json] = []
        self._given: set[int] = set()
        self._server: ThreadingHTTPServer | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        manager = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # as of the daemon: what is sent in two parts waits for no acknowledgement

            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])))

            def _answer(self, sent: bytes) -> None:
                claim = proofs.claim_of(self.headers["Authorization"] or "")
                assert claim is not None
                known = claim.content == hashlib.sha256(sent).hexdigest()
                known = known and proofs.holds(claim, manager.secret, self.command, self.path)
                offer = ""
                if known and not manager.sessions.accept(claim):
                    offer = manager.sessions.offer(claim.subjob)
                if not known or offer:
                    status, answer = 401, {"title": "unauthenticated"}
                else:
                    body = json.loads(sent) if sent else {}
                    status, answer = manager._handle(self.command, self.path, dict(self.headers), body)
                data = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    if known:
                        proof = proofs.answer_proof(manager.secret, claim, status, offer, data)
                        self.send_header(proofs.PROOF_HEADER, proof)
                        manager.answered.append((proof, status, data))
                    if offer:
                        self.send_header(proofs.SESSION_HEADER, offer)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: object, client_address: object) -> None:
                return  # a worker that was killed in the middle of a request

        self._server = Server((self.host, 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        (self.spool / "manager.json").write_text(json.dumps({"url": f"http://{self.host}:{self._server.server_port}"}))

    def stop(self) -> None:
        """Gone: no address in the spool and nobody listens. Connections that are open answer 503."""
        server, self._server = self._server, None
        if server is not None:
            (self.spool / "manager.json").unlink()
            with self.changed:
                self.changed.notify_all()
            server.shutdown()
            server.server_close()

    # -- what a test does ---------------------------------------------------------------------------------------------

    def send(self, kind: str, payload: Json, *, epoch: int | None = None) -> int:
        """Queue an operation; its sequence number."""
        with self.changed:
            seq = len(self._operations) + 1
            self._operations.append({"seq": seq, "kind": kind, "epoch": epoch, "payload": payload})
            self.changed.notify_all()
            return seq

    def deliver_again(self) -> None:
        """Hand every operation out once more."""
        with self.changed:
            self._given.clear()
            self.redeliver = True
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], Any], seconds: float = 120.0) -> Any:
        """The first true value of `condition`, which is looked at after every request."""
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                value = condition()
                if value:
                    return value
                left = until - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"did not happen within {seconds} s; reports: {self.reports}")
                self.changed.wait(min(left, 0.5))

    def result(self, seq: int, seconds: float = 120.0) -> Json:
        """The result of operation `seq`, once it is there."""

        def found() -> Json | None:
            return next((r for r in self.reports if r["kind"] == "result" and r["seq"] == seq), None)

        value: Json = self.wait_for(found, seconds)
        return value

    def run(self, kind: str, payload: Json, *, epoch: int | None = None, seconds: float = 120.0) -> Json:
        """Send an operation and wait for its result."""
        return self.result(self.send(kind, payload, epoch=epoch), seconds)

    def of_kind(self, kind: str) -> list[Json]:
        return [report for report in self.reports if report["kind"] == kind]

    # -- the protocol -------------------------------------------------------------------------------------------------

    def _handle(self, method: str, path: str, headers: Json, body: Json) -> tuple[int, Json]:
        url = urlsplit(path)
        with self.changed:
            self.requests.append({"method": method, "path": url.path, "headers": headers, "body": body})
            self.changed.notify_all()
            if self._server is None:
                return 503, {"title": "going away"}
            if self.status is not None:
                return self.status, {"title": "as the test wants it"}
            if url.path == "/v1/worker/register":
                return 200, self._register(body)
            if url.path == "/v1/worker/operations":
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                return self._operations_for(query)
            if url.path == "/v1/worker/reports":
                return self._take(body)
            return 404, {"title": "not found"}

    def _register(self, body: Json) -> Json:
        self.registrations.append(body)
        worker = self.workers.setdefault(body["boot"], f"w{len(self.workers) + 1}")
        self._given.clear()  # a reconnection: what was not answered is delivered again
        return {"worker": worker, "heartbeat_s": self.heartbeat_s, "poll_s": self.poll_s}

    def _operations_for(self, query: dict[str, str]) -> tuple[int, Json]:
        if query["worker"] not in self.workers.values():
            return 404, {"title": "no such worker"}
        until = time.monotonic() + float(query["wait"])
        while self._server is not None and self.status is None:
            answered = {r["seq"] for r in self.reports if r["kind"] == "result"}
            ready = [
                operation
                for operation in self._operations
                if operation["seq"] not in self._given and (self.redeliver or operation["seq"] not in answered)
            ]
            left = until - time.monotonic()
            if ready or left <= 0:
                self._given.update(operation["seq"] for operation in ready)
                return 200, {"operations": ready}
            self.changed.wait(left)
        return self.status or 503, {"title": "going away"}

    def _take(self, body: Json) -> tuple[int, Json]:
        worker = body["worker"]
        if worker not in self.workers.values():
            return 404, {"title": "no such worker"}
        if not body["reports"]:
            self.heartbeats += 1
        for report in body["reports"]:
            if self.refuse_report(report):
                return 422, {"title": "refused by the test"}
            if report["n"] == self.stored.get(worker, 0) + 1:
                self.stored[worker] = report["n"]
                self.reports.append(report)
        return 200, {"accepted": self.stored.get(worker, 0)}
