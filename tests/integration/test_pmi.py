"""PMI-1: lines torn anywhere, ranks that lie, and a server process that nobody but the job's ranks gets into."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fakes.worker_process import PROGRAM, WORKERS, eventually
from workers.ejb_worker.pmi.wire import LONGEST_LINE, LineReader, WireError, parse
from workers.ejb_worker.pmi.wireup import FINALIZED, Refused, Wireup

TICKETS = [1903847561, 77, 2000000001]


def said(job: Wireup, connection: int, *lines: str) -> list[tuple[int, str]]:
    """What is sent to whom upon these lines."""
    found = []
    for line in lines:
        found += [(to, data.decode().rstrip("\n")) for to, data in job.receive(connection, line)]
    return found


def joined(tickets: list[int] = TICKETS) -> Wireup:
    job = Wireup(tickets)
    for connection, ticket in enumerate(tickets):
        job.receive(connection, f"cmd=initack pmiid={ticket}")
        job.receive(connection, "cmd=init pmi_version=1 pmi_subversion=1")
    return job


# -- lines ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60), max_size=20), st.data())
def test_torn_lines_come_out_whole(lines: list[str], data: st.DataObject) -> None:
    stream = "".join(line + "\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = LineReader()
    found: list[str] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[begin:end])
    assert found == lines


def test_a_line_without_end_is_refused() -> None:
    reader = LineReader()
    with pytest.raises(WireError, match="more than"):
        for _ in range(LONGEST_LINE):
            reader.feed(b"xx")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200))
def test_any_line_is_parsed_or_refused(line: str) -> None:
    try:
        words = parse(line)
    except WireError as error:
        assert str(error)
    else:
        assert "cmd" in words or "mcmd" in words


def test_a_value_keeps_its_blanks_and_equals_signs() -> None:
    assert parse("cmd=put kvsname=k key=a value=x y=z w ")["value"] == "x y=z w"


# -- ranks ------------------------------------------------------------------------------------------------------------


def test_a_rank_is_told_who_it_is() -> None:
    job = Wireup(TICKETS)
    assert said(job, 9, "cmd=initack pmiid=77") == [
        (9, "cmd=initack"),
        (9, "cmd=set size=3"),
        (9, "cmd=set rank=1"),
        (9, "cmd=set debug=0"),
    ]
    with pytest.raises(Refused, match="rank 1 has come before"):
        job.receive(10, "cmd=initack pmiid=77")


@pytest.mark.parametrize("line", ["cmd=initack pmiid=78", "cmd=initack pmiid=0x4d", "cmd=init", "cmd=abort exitcode=1"])
def test_nobody_comes_in_without_a_ticket(line: str) -> None:
    job = Wireup(TICKETS)
    with pytest.raises(Refused):
        job.receive(1, line)
    job.gone(1)
    assert not job.over and job.states == {}


def test_values_are_put_and_got() -> None:
    job = joined()
    assert said(job, 0, "cmd=put kvsname=kvs_0 key=a value=1 2=3") == [(0, "cmd=put_result rc=0 msg=success")]
    assert said(job, 2, "cmd=get kvsname=kvs_0 key=a") == [(2, "cmd=get_result rc=0 msg=success value=1 2=3")]
    assert said(job, 2, "cmd=get kvsname=kvs_0 key=b")[0][1].startswith("cmd=get_result rc=-1")
    assert said(job, 1, "cmd=get kvsname=kvs_0 key=PMI_process_mapping")[0][1].endswith("value=(vector,(0,3,1))")


def test_a_barrier_lets_all_go_at_once() -> None:
    job = joined()
    assert said(job, 0, "cmd=barrier_in") == said(job, 2, "cmd=barrier_in") == []
    assert sorted(said(job, 1, "cmd=barrier_in")) == [(c, "cmd=barrier_out") for c in range(3)]
    assert said(job, 1, "cmd=barrier_in") == []
    with pytest.raises(Refused, match="in the barrier already"):
        job.receive(1, "cmd=barrier_in")


def test_a_clean_end() -> None:
    job = joined()
    for connection in range(3):
        assert not job.over
        said(job, connection, "cmd=finalize")
        job.gone(connection)
    assert job.exit_code == 0 and job.bad == {}


def test_an_abort_ends_the_job_and_keeps_its_code() -> None:
    job = joined()
    assert said(job, 1, "cmd=abort exitcode=7") == []
    assert job.exit_code == 1 and job.bad[1] == "aborted"
    assert ("abort", {"rank": 1, "code": 7}) in job.events


def test_a_lost_rank_ends_the_job() -> None:
    job = joined()
    job.gone(2)
    assert job.exit_code == 1 and job.bad[2] == "lost"


def test_what_it_does_not_know_is_answered() -> None:
    job = joined()
    assert said(job, 0, "mcmd=spawn nprocs=1") == [(0, "cmd=spawn_result rc=-1 msg=not_supported")]
    assert said(job, 0, "cmd=lookup_name service=x") == [(0, "cmd=lookup_name_result rc=-1 msg=not_supported")]
    assert said(job, 0, "cmd=init pmi_version=2")[0][1].endswith("rc=-1")


WORDS = st.sampled_from(
    [
        "cmd=init pmi_version=1",
        "cmd=barrier_in",
        "cmd=finalize",
        "cmd=get key=a",
        "cmd=put key=a value=b c",
        "cmd=abort exitcode=x",
        "cmd=get_maxes",
        "cmd=initack pmiid=77",
        "mcmd=spawn",
        "cmd=__class__",
        "cmd=",
        "=",
    ]
)
STEP = st.tuples(st.integers(0, 4), st.one_of(WORDS, st.none(), st.text(max_size=20)))


@settings(max_examples=200)
@given(st.lists(STEP, max_size=60))
@example([(0, "cmd=finalize"), (0, None)])
@example([(0, "cmd=init pmi_version=1"), (0, None)])
def test_ranks_that_say_anything(steps: list[tuple[int, str | None]]) -> None:
    """Whatever comes: an answer to those let in, or a refusal; never another error, never a word to a stranger."""
    job = joined()
    alive = set(range(3))
    for connection, line in steps:
        if line is None:
            job.gone(connection)
            alive.discard(connection)
            continue
        try:
            sends = job.receive(connection, line)
        except Refused:
            job.gone(connection)
            alive.discard(connection)
            continue
        assert {to for to, _data in sends} <= alive
        assert all(data.endswith(b"\n") and data.count(b"\n") == 1 for _to, data in sends)
    left = set(range(3)) - alive
    assert job.over or all(job.states[rank] == FINALIZED for rank in left), "a rank that left early went unnoticed"


# -- the server process -----------------------------------------------------------------------------------------------


class Server:
    def __init__(self, folder: Path, nodes: list[str]) -> None:
        self.folder = folder
        (folder / "tickets.json").write_text(json.dumps({"tickets": TICKETS, "nodes": nodes}))
        words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(WORKERS)]
        self.process = subprocess.Popen([*words, "pmi", "--folder", str(folder), "--host", "127.0.0.1"])
        eventually(lambda: (folder / "port.json").exists())
        self.port = int(json.loads((folder / "port.json").read_text())["port"])

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), 20)
        connection.settimeout(20)
        return connection

    def events(self) -> list[dict[str, object]]:
        path = self.folder / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def serving(folder: Path, nodes: list[str]) -> Iterator[Server]:
    server = Server(folder, nodes)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def test_a_stranger_is_closed_and_the_ranks_are_served(tmp_path: Path) -> None:
    with serving(tmp_path, ["127.0.0.1"]) as server:
        with server.connect() as stranger:
            stranger.sendall(b"cmd=initack pmiid=1234\n")
            assert stranger.recv(100) == b""
        with server.connect() as garbage:
            garbage.sendall(os.urandom(3000) + b"\n")
            assert garbage.recv(100) == b""
        ranks = [server.connect() for _ in TICKETS]
        for connection, ticket in zip(ranks, TICKETS, strict=True):
            line = f"cmd=initack pmiid={ticket}\n".encode()
            for byte in line:  # torn as small as can be
                connection.sendall(bytes([byte]))
            assert connection.makefile().readline() == "cmd=initack\n"
        eventually(lambda: any(event["event"] == "complete" for event in server.events()))
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        ranks[1].close()
        assert server.process.wait(20) == 1
        for connection in ranks:
            connection.close()
        assert server.events()[-1]["bad"] == {"0": "connected", "1": "lost", "2": "connected"}
        assert next(e["why"] for e in server.events() if e["event"] == "refused") == "a wrong ticket"


def test_only_from_the_jobs_nodes(tmp_path: Path) -> None:
    with serving(tmp_path, ["192.0.2.7"]) as server, server.connect() as connection:
        try:
            connection.sendall(f"cmd=initack pmiid={TICKETS[0]}\n".encode())
            assert connection.recv(100) == b""
        except ConnectionError:
            pass  # closed before it was said
        eventually(lambda: any(e["event"] == "refused" for e in server.events()))
        assert not any(e["event"] == "connected" for e in server.events())


def test_what_it_writes_is_the_users_alone(tmp_path: Path) -> None:
    with serving(tmp_path, []) as server, server.connect() as connection:
        connection.sendall(b"nonsense\n")
        assert connection.recv(100) == b""
        for name in ("port.json", "events.jsonl"):
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
