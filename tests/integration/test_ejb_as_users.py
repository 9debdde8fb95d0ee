"""`ejb-as` as root, behind a socket, for real users: which ids its work is done with, and whom it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ejbd.batch.base import Identity
from ejbd.batch.slurm import SlurmBatch
from ejbd.errors import BatchError, Code, EjbError, SubmitOutcomeUnknown
from ejbd.identity.sessions import Helper, NoAnswer
from ejbd.manager.hands.files import UsersFiles
from ejbd.manager.hands.hands import UsersHands
from ejbd.manager.hands.spool import Spool
from tests.fakes.daemon import ordinary
from tests.fakes.socketunit import PYTHON, SocketUnit
from tests.integration.users import People, as_user, change, missing_users, people

pytestmark = pytest.mark.skipif(bool(missing_users()), reason=missing_users())

# Says with which ids it runs, what it was started with, and in what; then it does what its script says first.
PROBE = """#!/bin/sh
exec 3>>{log}
{{ echo "argv $0 $*"; id -u; id -G; grep -E "^(NoNewPrivs|CapEff|CapPrm|Uid|Gid)" /proc/self/status; env; }} >&3
case "$*" in *--test-only*) exit 0;; esac
read -r first; case "$first" in "#die") kill -KILL $PPID; sleep 5;; esac
echo 4711
"""


class Site:
    def __init__(self, folder: Path, users: People) -> None:
        self.users = users
        self.log = folder / "ran"
        self.log.touch()
        self.log.chmod(0o666)
        programs = folder / "bin"
        programs.mkdir()
        for name in ("sbatch", "scancel", "scontrol"):
            (programs / name).write_text(PROBE.format(log=self.log))
            (programs / name).chmod(0o755)
        self.unit = SocketUnit(
            folder, users.service, users.spool, path=f"{programs}:/usr/bin:/bin", environment={"SLURM_CONF": "/x"}
        )
        self.helper = Helper(Path(), self.unit.command(), users.spool)
        fake = folder / "own"
        fake.mkdir()
        (fake / "scontrol").write_text("#!/bin/sh\necho ClusterName=x\n")
        (fake / "scontrol").chmod(0o755)
        self.batch = SlurmBatch(path=f"{fake}:/usr/bin:/bin", helper=self.helper)

    def ran(self) -> str:
        text = self.log.read_text()
        self.log.write_text("")
        return text

    def files(self, user: str) -> UsersFiles:
        return UsersFiles(self.helper, user)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with people() as users:
        made = Site(users.folder, users)
        try:
            yield made
        finally:
            made.helper.close()
            made.unit.close()


def test_each_users_files_are_that_users_own_and_out_of_others_reach(site: Site) -> None:
    for user in (site.users.alice, site.users.bob):
        uid, root = pwd.getpwnam(user).pw_uid, site.users.home(user) / ".ejb"
        files = site.files(user)
        files.folder(root / "jobs" / "1" / "subjobs")
        files.put(root / "jobs" / "1" / "env.json", b"{}")
        for path in (root, root / "jobs", root / "jobs" / "1", root / "jobs" / "1" / "env.json"):
            assert path.stat().st_uid == uid and path.stat().st_gid == pwd.getpwnam(user).pw_gid
            assert path.stat().st_mode & 0o077 == 0
        assert files.read(root / "jobs" / "1" / "env.json", 10)[0] == b"{}"
        assert files.there(root / "jobs" / "1") and not files.there(root / "jobs" / "2")
        assert as_user(site.users.mallory, ["ls", str(root)]).returncode != 0
    other = site.users.home(site.users.bob) / ".ejb" / "jobs"
    with pytest.raises(OSError):
        site.helper.read(other, 10, site.users.alice)  # by its whole path, as alice
    with pytest.raises(ValueError):
        site.files(site.users.alice).put(other / "x", b"")


def test_what_a_workflow_needs_of_files_is_seen_and_made_as_its_user(site: Site) -> None:
    """Homes are closed to the service user, and its own folder to the users."""
    hands = UsersHands(Spool(site.users.folder / "own"), site.helper)
    alice, bob, service = site.users.alice, site.users.bob, site.users.service
    home = site.users.home(alice)
    as_user(alice, ["touch", str(home / "input.txt")])
    (site.users.home(service) / "database").touch()
    assert as_user(service, ["ls", str(home)]).returncode != 0
    assert [found[0] for found in hands.find_files(alice, str(home), ["in*", f"../{service}/data*"])] == [1, 0]
    assert [found[0] for found in hands.find_files(bob, "/", [f"{home}/in*"])] == [0]
    hands.make_empty_file(alice, home / ".flows" / "a.go")
    assert (home / ".flows" / "a.go").stat().st_uid == pwd.getpwnam(alice).pw_uid
    for path in (home / ".flows" / "b.go", site.users.home(service) / "c.go"):
        with pytest.raises(PermissionError):
            hands.make_empty_file(bob, path)
    assert hands.read_file(alice, home / "input.txt", 9) == b""
    with pytest.raises(OSError):
        hands.read_file(bob, home / "input.txt", 9)


def test_sessions_that_their_user_has_stopped_are_killed_in_the_end_and_keep_no_other_waiting(site: Site) -> None:
    program = site.unit.program
    plain = program.read_text()
    look: dict[str, Any] = {"cwd": "/", "patterns": ["etc"], "most": 9, "seconds": 9}
    fresh = Helper(Path(), site.unit.command(), site.users.spool)
    try:
        program.unlink()
        program.write_text(plain.replace("MOST_SESSION_S, FULL_S = 600", "MOST_SESSION_S, FULL_S = 1"))
        program.chmod(0o755)
        fresh.ask(site.users.alice, "prepare")  # what forked the old ones sees the new file
        for _ in range(3):
            fresh.ask(site.users.mallory, "find", **look)
            (stopped,) = [one for one in site.unit.sessions() if one.username() == site.users.mallory]
            assert as_user(site.users.mallory, ["kill", "-STOP", str(stopped.pid)]).returncode == 0
            with pytest.raises(NoAnswer):
                fresh.ask(site.users.mallory, "find", answer_s=1.0, **look)
            fresh._silent.clear()
            assert fresh.ask(site.users.bob, "prepare")["ok"] and fresh.ask(site.users.alice, "prepare")["ok"]
            end_s = time.monotonic() + 60
            while stopped in site.unit.sessions():
                assert time.monotonic() < end_s
                Helper(Path(), site.unit.command(), site.users.spool).ask(site.users.bob, "prepare")
    finally:
        program.unlink()
        program.write_text(plain)
        program.chmod(0o755)
        fresh.close()


def test_a_batch_command_has_its_users_ids_and_nothing_of_roots(site: Site) -> None:
    user = pwd.getpwnam(site.users.alice)
    request = ordinary("ejb-1.1", 1, 60, site.users.home(site.users.alice), "echo\n")
    site.ran()
    assert asyncio.run(site.batch.submit(Identity(user.pw_name), request)) == "4711"
    said = site.ran()
    assert f"Uid:\t{user.pw_uid}\t{user.pw_uid}\t{user.pw_uid}\t{user.pw_uid}" in said
    assert f"Gid:\t{user.pw_gid}\t{user.pw_gid}\t{user.pw_gid}\t{user.pw_gid}" in said
    assert "NoNewPrivs:\t1" in said and said.count("0000000000000000") == 2
    assert f"HOME={user.pw_dir}" in said and "SLURM_CONF=/x" in said and "SUDO" not in said
    asyncio.run(site.batch.cancel(Identity(user.pw_name), ["12"]))
    assert "scancel 12" in site.ran()
    asyncio.run(site.batch.update(Identity(user.pw_name), "12", hold=True))
    assert "scontrol uhold 12" in site.ran()
    asyncio.run(site.batch.check(Identity(user.pw_name), request, 10))
    assert "--test-only" in site.ran()


def test_groups_are_those_of_today(site: Site) -> None:
    subprocess.run(["groupadd", "-f", site.users.alice + "x"], check=True, timeout=180)
    try:
        change(site.users.alice, "--append", "--groups", site.users.alice + "x")
        number = as_user(site.users.alice, ["id", "-G"]).stdout.split()
        fresh = Helper(Path(), site.helper._command, site.users.spool)
        batch = SlurmBatch(path=site.batch.commands.environment["PATH"], helper=fresh)
        site.ran()
        asyncio.run(batch.cancel(Identity(site.users.alice), ["1"]))
        groups = site.ran().splitlines()[2].split()
        assert sorted(groups) == sorted(number) and len(number) == 2
        fresh.close()
    finally:
        subprocess.run(["groupdel", "-f", site.users.alice + "x"], check=False, timeout=180)


@pytest.mark.parametrize(
    "who", ["root", "daemon", "service", "expired", "shell", "nobody-of-that-name", "../alice", ""]
)
def test_users_that_are_not_acted_for(site: Site, who: str) -> None:
    user = {"service": site.users.service, "expired": site.users.mallory, "shell": site.users.mallory}.get(who, who)
    options = {"expired": ("--expiredate", "2001-01-01"), "shell": ("--shell", "/usr/sbin/nologin")}.get(who)
    if options:
        change(site.users.mallory, *options)
    fresh = Helper(Path(), site.helper._command, site.users.spool)
    try:
        with pytest.raises(EjbError) as refused:
            fresh.ask(user, "prepare")
        assert refused.value.code is Code.FORBIDDEN, refused.value.sentence()
    finally:
        fresh.close()
        if options:
            change(site.users.mallory, "--expiredate", "", "--shell", "/bin/bash")


def test_only_the_service_user_is_served(site: Site) -> None:
    """By the mode of the socket, and by what the kernel says of the caller, also where the mode is wrong."""
    ask = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    ask += "s.sendall(sys.argv[2].encode()); print(s.makefile().readline())"
    argv = [PYTHON, "-c", ask, str(site.unit.path), json.dumps({"user": site.users.alice}) + "\n"]
    assert json.loads(as_user(site.users.service, argv).stdout)["uid"] == pwd.getpwnam(site.users.alice).pw_uid
    assert "Permission denied" in as_user(site.users.mallory, argv).stderr
    site.unit.path.chmod(0o666)
    try:
        for user in (site.users.mallory, site.users.alice):
            answer = json.loads(as_user(user, argv).stdout)
            assert answer["refused"] and "not served" in answer["error"]
    finally:
        site.unit.path.chmod(0o600)
    # Started by hand, it has no rights that it could give: neither as mallory nor with words of mallory's own.
    for words in ([], [str(site.unit.config)], ["--config", "x"], ["/etc/passwd"]):
        done = as_user(site.users.mallory, [PYTHON, "-IS", str(site.unit.program), *words])
        assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("ejb-as: ")


def _open_files(pid: int) -> dict[str, str]:
    return {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


def test_sessions_have_nothing_of_one_another_nor_of_what_forks_them(site: Site) -> None:
    fresh = Helper(Path(), site.unit.command(), site.users.spool)
    try:
        before = {one.pid for one in site.unit.sessions()}
        for user in (site.users.alice, site.users.bob):
            fresh.ask(user, "prepare")
        sessions = [one for one in site.unit.sessions() if one.pid not in before]
        numbers = [pwd.getpwnam(user).pw_uid for user in (site.users.alice, site.users.bob)]
        assert sorted(one.uids().real for one in sessions) == sorted(numbers)
        held = [_open_files(one.pid) for one in sessions]
        ends, of_root = [one["0"] for one in held], _open_files(site.unit.server.pid)
        assert ends[0] not in held[1].values() and ends[1] not in held[0].values()
        assert of_root["0"].startswith("socket:") and all(of_root["0"] not in one.values() for one in held)
        assert not {*of_root.values()} & {*ends} and psutil.Process(site.unit.server.pid).uids().real == 0
    finally:
        fresh.close()


def test_another_file_in_its_place_is_what_is_started_next(site: Site) -> None:
    starts, old = site.unit.starts, site.unit.program.read_bytes()
    fresh = Helper(Path(), site.unit.command(), site.users.spool)
    try:
        fresh.ask(site.users.alice, "prepare")
        site.unit.program.unlink()
        site.unit.program.write_bytes(old)
        site.unit.program.chmod(0o755)
        fresh.ask(site.users.alice, "prepare")  # the session that there is goes on
        fresh.ask(site.users.bob, "prepare")
        assert site.unit.starts == starts + 1 and site.unit.server.poll() is None
    finally:
        fresh.close()


def test_a_configuration_that_others_could_write_is_not_read(site: Site, tmp_path: Path) -> None:
    own = tmp_path / "ejb-as.json"
    own.write_text(json.dumps({"service": site.users.mallory, "spool": "/tmp/%u"}))
    for uid, mode in ((pwd.getpwnam(site.users.mallory).pw_uid, 0o644), (0, 0o666)):
        os.chown(own, uid, 0)
        own.chmod(mode)
        done = subprocess.run([*site.unit.argv()[:-1], str(own)], capture_output=True, timeout=180, check=False)
        assert done.returncode == 1 and b"must belong to root" in done.stderr


def test_a_helper_that_is_killed_at_a_verb(site: Site) -> None:
    """What may be repeated is, in a new session. A submission may have been taken: that is looked up, not repeated."""
    alice, root = site.users.alice, site.users.home(site.users.alice) / ".ejb"
    files = site.files(alice)

    def kill() -> None:
        assert site.unit.kill()

    request = ordinary("ejb-1.1", 1, 60, site.users.home(alice), "echo\n")
    files.put(root / "a", b"1")
    files.folder(root / "jobs")
    for again in (
        lambda: files.put(root / "a", b"2"), lambda: files.read(root / "a", 9), lambda: files.names(root / "jobs"),
        lambda: files.folder(root / "b"), lambda: files.link(root / "a", "c"), lambda: files.remove(root / "c"),
        lambda: asyncio.run(site.batch.cancel(Identity(alice), ["1"])),
        lambda: asyncio.run(site.batch.update(Identity(alice), "1", hold=False)),
        lambda: asyncio.run(site.batch.check(Identity(alice), request, 10)),
    ):  # fmt: skip
        kill()
        again()
    assert (root / "a").read_bytes() == b"2"
    kill()
    with pytest.raises(SubmitOutcomeUnknown):
        asyncio.run(site.batch.submit(Identity(alice), request))
    dying = ordinary("ejb-1.2", 1, 60, site.users.home(alice), "echo\n")
    object.__setattr__(dying, "script", "#die\n" + dying.script)
    with pytest.raises(SubmitOutcomeUnknown):  # in the middle of sbatch
        asyncio.run(site.batch.submit(Identity(alice), dying))
    assert "ejb-1.2" in site.unit.log.read_text(), "what killed its own session has left a line all the same"
    assert asyncio.run(site.batch.submit(Identity(alice), request)) == "4711"


def test_a_helper_that_is_not_there_has_surely_done_nothing(site: Site, tmp_path: Path) -> None:
    away = Helper(tmp_path / "none.sock", [], site.users.spool)
    batch = SlurmBatch(path=site.batch.commands.environment["PATH"], helper=away)
    request = ordinary("ejb-1.1", 1, 60, site.users.home(site.users.alice), "echo\n")
    with pytest.raises(BatchError) as refused:
        asyncio.run(batch.submit(Identity(site.users.alice), request))
    assert refused.value.transient and not isinstance(refused.value, SubmitOutcomeUnknown)
    with pytest.raises(EjbError) as failed:
        UsersFiles(away, site.users.alice).put(site.users.home(site.users.alice) / ".ejb" / "a", b"")
    assert failed.value.code is Code.SPOOL and failed.value.transient
    away.close()


def test_what_a_user_has_put_in_the_way_of_the_spool_leads_nowhere(site: Site) -> None:
    home = site.users.home(site.users.mallory)
    files = site.files(site.users.mallory)
    as_user(site.users.mallory, ["ln", "-s", str(site.users.home(site.users.alice)), str(home / ".ejb")])
    with pytest.raises(EjbError):
        files.put(home / ".ejb" / "a", b"")
    as_user(site.users.mallory, ["sh", "-c", f"rm {home}/.ejb; mkdir -m 777 {home}/.ejb"])
    with pytest.raises(EjbError) as refused:
        files.put(home / ".ejb" / "a", b"")
    assert "0700" in refused.value.sentence()
    as_user(site.users.mallory, ["sh", "-c", f"chmod 700 {home}/.ejb; ln -s {site.users.folder} {home}/.ejb/jobs"])
    with pytest.raises(EjbError):
        files.put(home / ".ejb" / "jobs" / "a", b"")
    assert not (site.users.folder / "a").exists()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.one_of(st.binary(max_size=40), st.just(b'{"verb": "read", "path": "."}')), max_size=4),
    name=st.one_of(st.text(max_size=12), st.sampled_from(["root", "0", "alice\0", "-1"])),
    environment=st.dictionaries(
        st.sampled_from(["LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "PATH", "SUDO_USER", "IFS"]),
        st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=12),
    ),
    uid=st.one_of(st.integers(-2, 70000), st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=5)),
    words=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8), max_size=2),
)
def test_nothing_that_is_said_to_it_makes_it_act(
    site: Site, lines: list[bytes], name: str, environment: dict[str, str], uid: int | str, words: list[str]
) -> None:
    """Whatever its environment, words, caller and lines are, it acts for no user that is not one, and for no caller."""
    own = str(site.unit.service.pw_uid)
    text = json.dumps({"user": name}).encode() + b"\n" + b"\n".join(lines) + b"\n"
    site.ran()
    for caller, argv in ((own, []), (str(uid), []), (own, words)):
        done = subprocess.run(
            [PYTHON, "-IS", str(site.unit.program), *(argv or [str(site.unit.config)])],
            input=text, capture_output=True, timeout=180, check=False, env={**environment, "SUDO_UID": caller},
        )  # fmt: skip
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(not answer["ok"] for answer in answers), (answers, name)
        assert b"Traceback" not in done.stderr, done.stderr
    assert site.ran() == ""


def test_a_session_ends_with_its_connection(site: Site) -> None:
    before = len(site.unit.sessions())
    end = socket.socket(socket.AF_UNIX)
    end.connect(str(site.unit.path))  # as root, which is not served either
    with end.makefile("rb") as answers:
        assert b"not served" in answers.readline()
        assert answers.readline() == b""
    end.close()
    assert len(site.unit.sessions()) <= before + 1
    assert issubclass(NoAnswer, EjbError)
