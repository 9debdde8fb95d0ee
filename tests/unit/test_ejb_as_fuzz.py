"""`ejb-as` against what no daemon would say: bytes, lengths, depths, accounts of every kind, and folders that change.

In this process and as this user, so that thousands of cases are cheap. tests/integration/test_ejb_as_users.py has the
same file as root.
"""

from __future__ import annotations

import base64
import ctypes
import io
import json
import os
import pwd
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ejbd.identity import ejb_as
from tests.fakes.unrun import Unrun

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CONFIG: dict[str, Any] = {"service": "ejb", "least_uid": 1000, "refused": ["admin"], "no_new_privs": True}
DEEP = b"[" * 100_000
_CWD, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
LINES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from([DEEP, b'{"verb": ' * 50_000, b'{"verb": "cancel", "ids": [' + b"1" * 5000 + b"]}", b"1e999"]),
        st.sampled_from([b'{"verb": "run"}', b'{"verb": "answer"}', b'{"verb": "__init__"}', b"NaN", b"\xff\xfe", b""]),
    ),
    max_size=6,
)


class Served:
    """Sessions of `ejb-as` whose root, user and batch commands are not real."""

    def __init__(self, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spool = spool
        self.answers: list[dict[str, Any]] = []
        self.ran: list[list[str]] = []
        self.became: list[str] = []
        monkeypatch.setattr(ejb_as, "check_caller", lambda service: None)
        monkeypatch.setattr(ejb_as, "become", lambda user, no_new_privs: self.became.append(user.pw_name))
        monkeypatch.setattr(ejb_as, "tell", self.answers.append)
        monkeypatch.setattr(ejb_as, "Session", self._session)
        monkeypatch.setattr("ejbd.identity.ejb_as.signal.alarm", lambda seconds: 0)
        monkeypatch.setattr("ejbd.identity.ejb_as.syslog.syslog", lambda *words: None)

    def _session(self, user: Any, config: dict[str, Any]) -> Unrun:
        made = Unrun(self.spool)
        made.ran = self.ran
        return made

    def serve(self, data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        self.answers.clear()
        self.became.clear()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        ejb_as.serve(CONFIG)
        return list(self.answers)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    tmp_path.chmod(0o755)
    yield Served(tmp_path / "spool", monkeypatch)


def me() -> pwd.struct_passwd:
    return pwd.getpwuid(os.geteuid())


@FEW
@given(lines=LINES)
def test_whatever_bytes_come_each_line_is_refused_by_an_answer_and_nothing_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch, lines: list[bytes]
) -> None:
    monkeypatch.setattr(ejb_as, "check_user", lambda name, config: me())
    data = b"".join(line.replace(b"\n", b"?") + b"\n" for line in lines)
    first, *answers = served.serve(b'{"user": "alice"}\n' + data, monkeypatch)
    assert first["ok"] and len(answers) == len(lines), "one answer to each"
    assert all(answer["ok"] is False and answer["refused"] and answer["error"] for answer in answers)
    assert served.ran == [] and not served.spool.exists()


@FEW
@given(data=st.one_of(st.binary(max_size=80), st.just(DEEP + b"\n"), st.just(b'{"user": ["root"]}\n')))
def test_a_first_line_without_a_user_is_refused_before_root_is_used(
    served: Served, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    (answer,) = served.serve(data, monkeypatch)
    assert answer["ok"] is False and answer["refused"]
    assert served.became == []


@pytest.mark.parametrize(("length", "taken"), [(99, True), (100, True), (101, False), (5000, False)])
def test_a_line_that_is_too_long_ends_the_session(
    served: Served, monkeypatch: pytest.MonkeyPatch, length: int, taken: bool
) -> None:
    """Also what stands behind it in the stream is not taken for a request."""
    monkeypatch.setattr(ejb_as, "check_user", lambda name, config: me())
    monkeypatch.setattr(ejb_as, "MOST_LINE", 100)
    good = b'{"verb": "cancel", "ids": ["1"]}'
    line = good + b" " * (length - len(good) - 1) + b"\n"
    answers = served.serve(b'{"user": "alice"}\n' + line + good + b"\n", monkeypatch)
    assert len(answers) == (3 if taken else 1)
    assert len(served.ran) == (2 if taken else 0)


def test_a_line_without_an_end_is_no_request(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is cut in the middle of `"ids": ["12` has not asked for job 1."""
    monkeypatch.setattr(ejb_as, "check_user", lambda name, config: me())
    good = b'{"verb": "cancel", "ids": ["12"]}'
    for at in range(len(good) + 1):
        assert len(served.serve(b'{"user": "alice"}\n' + good[:at], monkeypatch)) == 1
    assert served.ran == []


@FEW
@given(
    name=st.one_of(st.sampled_from(["alice", "ejb", "admin", "root", "a\n", "-x", "../a", "a b", "é"]), st.text()),
    uid=st.one_of(st.sampled_from([0, 999, 1000]), st.integers(0, 2**32 - 2)),
    gid=st.sampled_from([0, 100, 1000]),
    shell=st.sampled_from(["/bin/bash", "/bin/sh", "/usr/sbin/nologin", "/bin/false", "", "/no/such"]),
    days=st.one_of(st.sampled_from(["", "0", "1", "99999", "-1", "x", "20000:", "²"]), st.integers(0, 99999).map(str)),
)
def test_an_account_is_acted_for_only_if_all_of_it_is_right(
    monkeypatch: pytest.MonkeyPatch, name: str, uid: int, gid: int, shell: str, days: str
) -> None:
    entry = pwd.struct_passwd((name, "x", uid, gid, "", "/home/x", shell))
    shadow = f"{name}:*:19000:0:99999:7::{days}:\n".encode()
    monkeypatch.setattr("ejbd.identity.ejb_as.pwd.getpwnam", lambda asked: entry)
    monkeypatch.setattr("ejbd.identity.ejb_as.pwd.getpwuid", lambda asked: entry)
    monkeypatch.setattr("ejbd.identity.ejb_as.subprocess.run", lambda *words, **more: SimpleNamespace(stdout=shadow))
    monkeypatch.setattr("ejbd.identity.ejb_as.time.time", lambda: 20000.5 * 86400)
    try:
        found = ejb_as.check_user(name, CONFIG)
    except (ejb_as.Refused, ValueError):
        return
    assert found is entry and uid >= 1000 and gid != 0
    assert name not in ("ejb", "admin", "root") or (name == "root" and uid >= 1000)
    assert name.isascii() and name.strip("-./ \n") == name and "/" not in name and " " not in name
    assert shell in ("/bin/bash", "/bin/sh")
    assert not (days.isdecimal() and int(days) <= 20000), "it has expired"


@pytest.mark.parametrize("days", ["1", "20000"])
def test_an_account_that_ends_today_has_expired(monkeypatch: pytest.MonkeyPatch, days: str) -> None:
    entry = pwd.struct_passwd(("alice", "x", 1001, 1001, "", "/home/x", "/bin/bash"))
    monkeypatch.setattr("ejbd.identity.ejb_as.pwd.getpwnam", lambda asked: entry)
    monkeypatch.setattr("ejbd.identity.ejb_as.pwd.getpwuid", lambda asked: entry)
    shadow = f"alice:*:1:0:1:7::{days}:\n".encode()
    monkeypatch.setattr("ejbd.identity.ejb_as.subprocess.run", lambda *words, **more: SimpleNamespace(stdout=shadow))
    monkeypatch.setattr("ejbd.identity.ejb_as.time.time", lambda: 20000.0 * 86400)
    with pytest.raises(ejb_as.Refused, match="has expired"):
        ejb_as.check_user("alice", CONFIG)


@pytest.mark.parametrize("first", ["alice", "Alice2"])
def test_a_name_that_is_not_what_its_number_is_called_is_not_acted_for(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Two names of one number, or another case: the batch system lists the jobs of both under the first alone."""
    entry = pwd.struct_passwd(("alice2", "x", 1001, 1001, "", "/home/x", "/bin/bash"))
    monkeypatch.setattr("ejbd.identity.ejb_as.pwd.getpwnam", lambda asked: entry)
    other = pwd.struct_passwd((first, "x", 1001, 1001, "", "/home/y", "/bin/bash"))
    monkeypatch.setattr("ejbd.identity.ejb_as.pwd.getpwuid", lambda uid: other)
    with pytest.raises(ejb_as.Refused, match="user alice2 is not what its number is called"):
        ejb_as.check_user("alice2", CONFIG)


@FEW
@given(
    verb=st.sampled_from(["put", "read", "remove", "prepare"]),
    parts=st.lists(st.sampled_from(["jobs", "a", "b", "kept", "..", ".", "", "away"]), min_size=1, max_size=5),
    at=st.integers(0, 3),
)
def test_no_path_leads_out_whichever_part_of_it_is_a_link(
    tmp_path_factory: pytest.TempPathFactory, verb: str, parts: list[str], at: int
) -> None:
    folder = tmp_path_factory.mktemp("links")
    folder.chmod(0o755)
    session, outside = Unrun(folder / "spool"), folder / "outside"
    (outside / "a" / "b").mkdir(parents=True)
    (outside / "kept").write_text("kept")
    inner = folder / "spool"
    inner.mkdir(0o700)
    for name in ["jobs", "a", "b"][:at]:
        inner = inner / name
        inner.mkdir(0o700)
    for name in ("jobs", "a", "b", "away"):
        if not (inner / name).exists():
            (inner / name).symlink_to(outside)
    (inner / "kept").symlink_to(outside / "kept")
    path = "/".join(parts)
    data = base64.b64encode(b"new").decode()
    if path.startswith("/"):
        return  # a whole path is an output, which a user's own rights keep
    answer = session.ask(verb=verb, path=path, data=data, most=9, folders=[path])
    assert answer["ok"] or answer["error"]
    assert base64.b64decode(answer.get("data", "")) != b"kept"
    real = folder / "spool" / path
    if "names" in answer:
        assert real.resolve() == real.absolute() or ".." in parts, "no folder behind a link is listed"
    assert sorted(str(one.relative_to(outside)) for one in outside.rglob("*")) == ["a", "a/b", "kept"]
    assert (outside / "kept").read_text() == "kept"


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    """The user renames a folder of the spool and a link for each other, for as long as things are done there."""
    tmp_path.chmod(0o755)
    session, outside = Unrun(tmp_path / "spool"), tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "kept").write_text("kept")
    assert session.ask(verb="prepare", folders=["jobs/1/deep"])["ok"]
    folder, link = (tmp_path / "spool" / "jobs" / name for name in ("1", "link"))
    link.symlink_to(outside)
    over = threading.Event()

    exchange = ctypes.CDLL(None).renameat2
    ends = (_CWD, os.fsencode(folder), _CWD, os.fsencode(link), _EXCHANGE)
    if exchange(*ends) != 0 or exchange(*ends) != 0:
        pytest.skip("this file system exchanges no two names")

    def swap() -> None:
        while not over.is_set():
            exchange(*ends)

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    answers = []
    try:
        for number in range(100):
            for request in (
                {"verb": "put", "path": f"jobs/1/deep/{number}", "data": ""},
                {"verb": "put", "path": f"jobs/1/{number}", "data": ""},
                {"verb": "read", "path": "jobs/1/kept", "most": 9},
                {"verb": "remove", "path": "jobs/1/deep"},
                {"verb": "remove", "path": "jobs/1/kept"},
                {"verb": "prepare", "folders": ["jobs/1/deep"]},
            ):
                answers.append(session.ask(**request))
    finally:
        over.set()
        thread.join(30)
    assert any(answer["ok"] for answer in answers) and not all(answer["ok"] for answer in answers)
    assert all(base64.b64decode(answer.get("data", "")) != b"kept" for answer in answers)
    assert sorted(str(one.relative_to(outside)) for one in outside.rglob("*")) == ["deep", "kept"]
    assert (outside / "kept").read_text() == "kept"


def test_the_cases_end_where_json_is_read(served: Served) -> None:
    """Depth is refused by the very reader: what is parsed is no deeper than Python's own stack."""
    with pytest.raises(RecursionError):
        json.loads(DEEP)
