"""The daemon is down, and somebody else has bound its port: he learns nothing that he can use, and nothing starts."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ejbd.manager.protocol import proofs
from tests.fakes.worker_process import World, alive, eventually, world


class Hostile:
    """A server that says whatever a worker could wish to hear, but cannot prove any of it."""

    def __init__(self, there: World, how: str) -> None:
        self.there, self.how = there, how
        self.heard: list[bytes] = []
        self.trap = there.spool / "entered"
        self.port = 0
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hostile._serve(self, b"")

            def do_POST(self) -> None:
                hostile._serve(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, *args: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: object, client_address: object) -> None:
                return

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        (there.spool / "manager.json").write_text(json.dumps({"url": f"http://127.0.0.1:{self.port}"}))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.heard.append(str(handler.headers).encode() + handler.path.encode() + body)
        status, answer = 200, self._answer(handler.path)
        if self.how.isdigit():
            status = int(self.how)
        data = json.dumps(answer).encode()
        handler.send_response(status)
        if status in (301, 302, 307):
            handler.send_header("Location", f"http://127.0.0.1:{self.port}{handler.path}")
        if self.how == "made-up proof":
            handler.send_header(proofs.PROOF_HEADER, "0" * 64)
        if self.how == "reflected proof":
            handler.send_header(proofs.PROOF_HEADER, str(handler.headers["Authorization"]).rpartition(" ")[2])
        claim = proofs.claim_of(handler.headers["Authorization"])
        assert claim is not None
        secret = self.there.manager.secret
        proof = partial(proofs.answer_proof, secret, claim)
        forged = {
            "another subjob's secret": lambda: proofs.answer_proof(proofs.new_secret(), claim, status, "", data),
            "altered on its way": lambda: proof(status, "", b'{"operations": []}'),
            "another status on its way": lambda: proof(503, "", data),
            "session put in on its way": lambda: proof(status, "1-" + "a" * 32, data),
            "for another request": lambda: proof.func(
                *proof.args[:1], replace(claim, proof="0" * 64), status, "", data
            ),
        }
        if self.how in forged:
            handler.send_header(proofs.PROOF_HEADER, forged[self.how]())
        if self.how == "session":
            handler.send_header(proofs.SESSION_HEADER, "1-" + "a" * 32)
        if self.how == "old answer":
            shown, status_then, then = self.there.manager.answered[-1]
            assert status_then == 200
            handler.send_header(proofs.PROOF_HEADER, shown)
            data = then
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, path: str) -> dict[str, Any]:
        if path.startswith("/v1/worker/register"):
            return {"worker": "w1", "heartbeat_s": 0.2, "poll_s": 0.2}
        if path.startswith("/v1/worker/reports"):
            return {"accepted": 10**6}
        script = self.there.script(f"#!/bin/sh\nid > {self.trap}\n")
        lead = {"run": 1, "output": str(self.there.spool / "o"), "error": None, "script": script, "processors": 1}
        operations = [{"seq": 10**6 + 1, "kind": "lead", "epoch": None, "payload": lead}]
        operations.append({"seq": 10**6 + 2, "kind": "exit", "epoch": None, "payload": {}})
        return {"operations": operations}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


ANSWERS = ["200", "401", "403", "404", "422", "302", "500", "made-up proof", "reflected proof", "session", "old answer"]
ANSWERS += ["another subjob's secret", "altered on its way", "another status on its way", "for another request"]
ANSWERS += ["session put in on its way"]


def test_who_takes_the_daemons_port_learns_nothing_and_starts_nothing(there: World) -> None:
    there.start()
    rank = there.launch("sleep", "300")[0]
    before = len(there.manager.reports)
    there.manager.stop()
    hostile = Hostile(there, "403")
    try:
        for how in ("403", "200", "old answer"):
            hostile.how = how
            seen = len(hostile.heard)
            eventually(lambda seen=seen: len(hostile.heard) >= seen + 2, 60)  # type: ignore[misc]
            assert there.worker.poll() is None and alive(rank), how
        heard = b"".join(hostile.heard)
    finally:
        hostile.close()
    assert there.manager.secret.encode() not in heard
    seen = len(there.manager.registrations)
    there.manager.start()
    there.manager.wait_for(lambda: len(there.manager.registrations) > seen)
    assert there.worker.poll() is None and alive(rank)
    assert not hostile.trap.exists()
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 1})["ok"]
    # Nothing that the worker had to tell was taken for told by the one who was there in between.
    assert [report["n"] for report in there.manager.reports] == list(range(1, len(there.manager.reports) + 1))
    assert len(there.manager.reports) > before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ANSWERS)
def test_no_answer_without_the_daemons_proof_counts(there: World, how: str) -> None:
    transport = importlib.import_module("workers.ejb_worker.transport")
    settings = importlib.import_module("workers.ejb_worker.settings")
    client = transport.Client(settings.read_subjob(str(there.manager.subjob_dir)))
    hello = {"node": "n1", "boot": "b"}
    there.manager.start()
    assert client.request("POST", "/v1/worker/register", hello)["worker"] == "w1"
    there.manager.stop()
    client.close()
    hostile = Hostile(there, how)
    try:
        for method, path, body in (
            ("POST", "/v1/worker/register", hello),
            ("GET", "/v1/worker/operations?worker=w1&after=0&wait=0", None),
            ("POST", "/v1/worker/reports", {"worker": "w1", "reports": []}),
        ):
            with pytest.raises(transport.Away):
                client.request(method, path, body)
    finally:
        hostile.close()
    there.manager.start()
    assert client.request("POST", "/v1/worker/register", hello)["worker"] == "w1"
    client.close()


def outside(there: World) -> Path:
    folder = there.spool / "elsewhere"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "what", ["launch_file", "epoch_dir", "restart_dir", "calls", "plugin", "a link out of the folder"]
)
def test_a_launch_reads_and_writes_in_the_jobs_folder_alone(there: World, what: str) -> None:
    there.start()
    good = there.launch_payload(there.launch_file("sh", "-c", f"echo > {there.spool / 'ran'}"))
    away = outside(there)
    (away / "0.json").write_text((there.job_dir / "launches" / "0.json").read_text())
    changes: dict[str, Any] = {
        "launch_file": {"launch_file": str(away / "0.json")},
        "epoch_dir": {"epoch_dir": str(there.job_dir / "epochs" / ".." / ".." / ".." / ".." / "elsewhere" / "1")},
        "restart_dir": {"restart_dir": str(away)},
        "calls": {"dmtcp": {"calls": "/tmp/x.so", "plugin": None, "compress": False, "options": []}},
        "plugin": {"dmtcp": {"plugin": "/tmp/x.so", "compress": False, "checksum": False, "options": []}},
        "a link out of the folder": {"epoch_dir": str(there.job_dir / "epochs" / "9")},
    }
    (there.job_dir / "epochs").mkdir(exist_ok=True)
    (there.job_dir / "epochs" / "9").symlink_to(away)
    result = there.manager.run("launch", {**good, **changes[what]}, epoch=1)
    assert not result["ok"] and " is not in the " in result["error"]
    assert sorted(path.name for path in away.iterdir()) == ["0.json"]
    assert not (there.spool / "ran").exists()


@pytest.mark.parametrize("what", ["path", "env_file"])
def test_a_script_and_its_environment_come_from_the_jobs_folder_alone(there: World, what: str) -> None:
    there.start()
    script = there.script(f"#!/bin/sh\necho > {there.spool / 'ran'}\n")
    other = outside(there) / "file"
    other.write_text(Path(script[what]).read_text())
    result = there.lead({**script, what: str(other)})
    assert not result["ok"] and "is not in the job's folder" in result["error"]
    assert not (there.spool / "ran").exists()
    assert there.lead(script, run=2)["ok"]
