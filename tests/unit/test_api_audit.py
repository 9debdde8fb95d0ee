"""The audit: a line for each act of a user, for each refusal, and for each look at what is another's."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from ejbd.api.audit.door import AuditDoor
from ejbd.api.audit.records import MOST_FAILURES_S, read_back
from ejbd.api.audit.trail import FileSink, JournalSink, Trail, open_trail
from ejbd.errors import Code, EjbError
from tests.fakes.api_server import ApiServer
from tests.unit.test_api_access import JOB, ME, as_user

Records = list[dict[str, Any]]


class Audited:
    """A daemon that keeps an audit, with ada its administrator and otto its operator."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "audit.jsonl"
        settings = {"admins": ["ada"], "operators": ["otto"], "audit": str(self.file)}
        self.server = ApiServer(folder, settings=settings)

    def unix(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=self.server.socket)
        return httpx.Client(transport=transport, base_url="http://ejbd", timeout=20)

    def user(self, user: str, scope: str) -> httpx.Client:
        return as_user(self.server, user, scope)

    def lines(self) -> Records:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    found = Audited(tmp_path)
    yield found
    found.server.close()


def test_an_act_says_which_user_did_what_by_which_proof_and_how_it_ended(audited: Audited) -> None:
    with audited.unix() as here:
        job = here.post("/v1/jobs", json=JOB).json()["id"]
        here.get("/v1/jobs")
        here.post(f"/v1/jobs/{job}/release")
    taken, released = audited.lines()
    assert (taken["user"], taken["proof"], taken["uid"], taken["pid"]) == (ME, "peer", os.geteuid(), os.getpid())
    assert (taken["act"], taken["job"], taken["outcome"], taken["status"]) == ("POST /v1/jobs", job, "done", 201)
    assert taken["on_behalf_of"] is taken["token"] is None and taken["scope"] == "admin"
    assert abs(datetime.fromisoformat(taken["at"]).timestamp() - datetime.now(UTC).timestamp()) < 600
    assert (released["act"], released["job"]) == (f"POST /v1/jobs/{job}/release", job)
    assert (released["outcome"], released["code"]) == ("refused", "conflict")
    assert stat.S_IMODE(audited.file.stat().st_mode) == 0o600


def test_what_an_operator_does_is_on_behalf_of_the_owner_also_a_look(audited: Audited) -> None:
    with audited.user("ulla", "submit") as ulla, audited.user("otto", "operate") as otto:
        job = ulla.post("/v1/jobs", json=JOB).json()["id"]
        ulla.get(f"/v1/jobs/{job}/logs")
        otto.get(f"/v1/jobs/{job}/logs")
        otto.post(f"/v1/jobs/{job}/cancel")
    told = [(one["user"], one["act"].split("/")[-1], one["on_behalf_of"], one["job"]) for one in audited.lines()]
    assert told == [("ulla", "jobs", None, job), ("otto", "logs", "ulla", job), ("otto", "cancel", "ulla", job)]
    assert all(one["proof"] == "token" and len(one["token"]) == 16 for one in audited.lines())


def test_what_is_refused_is_told_and_looks_at_ones_own_are_not(audited: Audited) -> None:
    with audited.user("ulla", "submit") as ulla, audited.user("ada", "read") as narrow:
        ulla.get("/v1/jobs")
        ulla.post("/v1/drains", json={"nodes": "n1", "by_s": 0})
        narrow.get("/v1/audit")
    httpx.get(f"{audited.server.servers.url}/v1/jobs", headers={"Authorization": "Bearer ejb_guess"}, timeout=20)
    told = [(one["user"], one["act"], one["status"], one["code"]) for one in audited.lines()]
    assert told == [
        ("ulla", "POST /v1/drains", 403, "forbidden"),
        ("ada", "GET /v1/audit", 403, "forbidden"),
        (None, "GET /v1/jobs", 401, "unauthenticated"),
    ]


def test_users_that_are_not_known_cannot_fill_the_disk(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 1000.0

        def time(self) -> float:
            return self.now

    monkeypatch.setattr("ejbd.api.audit.door.time", clock := Clock())
    with httpx.Client(base_url=audited.server.servers.url, timeout=20) as stranger:
        for _ in range(MOST_FAILURES_S + 7):
            assert stranger.get("/v1/jobs").status_code == 401
        clock.now += 1
        stranger.get("/v1/jobs")
    lines = audited.lines()
    assert len(lines) == MOST_FAILURES_S + 1 and lines[-1]["left_out"] == 7


def test_administrators_read_it_back(audited: Audited) -> None:
    with audited.user("ulla", "submit") as ulla, audited.user("ada", "admin") as ada:
        job = ulla.post("/v1/jobs", json=JOB).json()["id"]
        ada.post(f"/v1/jobs/{job}/cancel")
        ada.post("/v1/drains", json={"nodes": "n1", "by_s": 0})

        def acts(**query: Any) -> list[str]:
            return [one["act"].rpartition("/")[2] for one in ada.get("/v1/audit", params=query).json()["lines"]]

        assert acts() == ["jobs", "cancel", "drains"]
        assert acts(limit=1) == ["drains"]
        assert acts(user="ulla") == acts(job=job) == ["jobs", "cancel"]
        assert acts(user="ada") == ["cancel", "drains"]
        assert acts(outcome="refused") == acts(until_s=1) == acts(since_s=9e9) == []
        audited.file.unlink()
        told = ada.get("/v1/audit").json()
    assert told["code"] == "store" and told["where"] == str(audited.file)


def test_without_one_there_is_nothing_to_read(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=server.socket), base_url="http://ejbd") as here:
            assert here.get("/v1/audit").json()["code"] == "unsupported"
    finally:
        server.close()


def test_a_file_that_was_moved_away_is_begun_anew_on_hup(audited: Audited) -> None:
    with audited.unix() as here:
        here.post("/v1/jobs", json=JOB)
        moved = audited.file.rename(audited.file.with_suffix(".1"))
        here.post("/v1/jobs", json=JOB)
        audited.server.servers.reload()
        here.post("/v1/jobs", json=JOB)
    assert len(moved.read_text().splitlines()) == 2 and len(audited.lines()) == 1


class FullSink:
    """A disk that is full while `full`."""

    def __init__(self) -> None:
        self.full, self.lines = False, list[str]()

    def write(self, line: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.lines.append(line)

    def reopen(self) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    def close(self) -> None: ...


def test_nothing_is_done_that_cannot_be_told_and_looks_go_on(audited: Audited) -> None:
    sink = FullSink()
    trail = audited.server.servers.app.state.trail
    trail._sink = sink
    trail.reopen()  # that it fails is no reason to do without
    with audited.unix() as here:
        sink.full = True
        assert here.post("/v1/jobs", json=JOB).status_code == 201  # it was done when the disk turned out to be full
        told = here.post("/v1/jobs", json=JOB)
        assert told.status_code == 503 and "No space left" in told.json()["detail"]
        assert len(here.get("/v1/jobs").json()["jobs"]) == 1
        sink.full = False
        assert here.post("/v1/jobs", json=JOB).status_code == 201
    assert [json.loads(line)["act"] for line in sink.lines] == ["audit kept again", "POST /v1/jobs"]


@pytest.mark.parametrize("what", ["folder", "link", "fifo", "nowhere"])
def test_a_place_where_no_audit_can_be_is_refused_at_the_start(tmp_path: Path, what: str) -> None:
    at = tmp_path / "audit"
    if what == "folder":
        at.mkdir()
    elif what == "link":
        at.symlink_to(tmp_path / "elsewhere")
    elif what == "fifo":
        os.mkfifo(at)
    else:
        at = tmp_path / "no" / "such" / "folder"
    with pytest.raises(EjbError, match="cannot be kept there") as caught:
        open_trail(str(at))
    assert caught.value.code is Code.INVALID and not (tmp_path / "elsewhere").exists()


def test_a_file_that_others_could_read_is_taken_from_them(tmp_path: Path) -> None:
    at = tmp_path / "audit"
    at.write_text("")
    at.chmod(0o666)
    FileSink(at).close()
    assert stat.S_IMODE(at.stat().st_mode) == 0o600


def test_half_a_line_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FileSink(tmp_path / "audit")
    sink.write("{}")
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        with pytest.raises(OSError, match="No space left"):
            sink.write('{"at": "half"}')
    sink.write("{}")
    sink.close()
    assert (tmp_path / "audit").read_text() == "{}\n{}\n"


def test_a_long_file_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ejbd.api.audit.records._BLOCK", 100)
    at = tmp_path / "audit"
    stamp = [datetime.fromtimestamp(n, UTC).isoformat() for n in range(200)]
    lines = [json.dumps({"at": stamp[n], "user": f"u{n % 3}", "n": n}) for n in range(200)]
    at.write_text("\n".join([*lines[:100], "not json", '{"at": 5}', "[]", *lines[100:]]) + "\n")
    assert [one["n"] for one in read_back(at, 3)] == [197, 198, 199]
    assert [one["n"] for one in read_back(at, 1000)] == list(range(200))
    assert [one["n"] for one in read_back(at, 1000, since_s=90, until_s=95, user="u0")] == [90, 93]
    (tmp_path / "empty").touch()
    assert read_back(tmp_path / "empty", 5) == []


def test_the_journal_gets_a_datagram_a_line(tmp_path: Path) -> None:
    address = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.settimeout(20)
        journal.bind(address)
        trail = Trail(JournalSink(address), None)
        trail.tell({"act": "x"})
        assert journal.recv(4096) == b'MESSAGE={"act":"x"}\nPRIORITY=5\nSYSLOG_IDENTIFIER=ejbd-audit\n'
    Path(address).unlink()
    trail.tell({"act": "y"})
    with pytest.raises(EjbError, match="cannot be kept"):
        trail.refuse_unkept(lambda: {})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:  # it is back
        journal.settimeout(20)
        journal.bind(address)
        trail.refuse_unkept(lambda: {"act": "z"})
        assert b'"z"' in journal.recv(4096)
    trail.close()
    with pytest.raises(OSError, match="No such file"):
        JournalSink(str(tmp_path / "none"))


async def test_without_a_trail_requests_pass_as_they_are() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    scope = {"type": "http", "method": "POST", "path": "/v1/jobs"}
    await AuditDoor(app, None)(scope, 1, 2)  # type: ignore[arg-type]
    assert seen == [(scope, 1, 2)]
