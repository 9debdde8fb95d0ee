"""`ejb-as`, the privileged helper: what it lets through, asked in this process, as this user, with no command run."""

from __future__ import annotations

import ast
import base64
import ctypes
import json
import os
import pwd
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ejbd.batch.slurm.acting import one_word_each
from ejbd.errors import BatchError
from ejbd.files.userfiles import NotTheirs, read_plain
from ejbd.identity import ejb_as
from ejbd.manager.hands.files import OwnFiles
from ejbd.options.sbatch import OPTIONS, Argument, Use
from tests.fakes.unrun import Unrun
from tests.nightly import examples

SOURCE = Path(ejb_as.__file__)
MOST_LINES = 350


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Unrun]:
    tmp_path.chmod(0o755)
    made = Unrun(tmp_path / "spool")
    assert made.ask(verb="prepare", folders=["jobs"])["ok"]
    yield made


def test_the_helper_is_small_and_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(SOURCE.read_text())
    of_text: set[int] = set()
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
        if documented:
            text = node.body[0]  # type: ignore[attr-defined]
            of_text |= set(range(text.lineno, text.end_lineno + 1))
    lines = enumerate(SOURCE.read_text().splitlines(), 1)
    code = [line for at, line in lines if line.strip() and not line.strip().startswith("#") and at not in of_text]
    assert len(code) < MOST_LINES
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)


def test_files_appear_whole_below_the_spool_and_nowhere_else(session: Unrun, tmp_path: Path) -> None:
    data = base64.b64encode(b"hello").decode()
    assert session.ask(verb="put", path="jobs/1/a", data=data, mode=0o700)["ok"]
    file = tmp_path / "spool/jobs/1/a"
    assert file.read_bytes() == b"hello" and file.stat().st_mode & 0o777 == 0o700
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert base64.b64decode(session.ask(verb="read", path="jobs/1/a", most=3, offset=1)["data"]) == b"ell"
    assert session.ask(verb="read", path="jobs/1")["names"] == ["a"]
    assert session.ask(verb="put", path="jobs/1/b", link="a")["ok"]
    assert session.ask(verb="put", path="jobs/1/b", link="a")["errno"] == 17, "what is claimed stays claimed"
    assert session.ask(verb="remove", path="jobs/1")["ok"] and not file.parent.exists()
    for path in ("../a", "/tmp/a", "a/../../b", "", "a//b", ".", "jobs/./a", "a\0b", "a" * 300, 7, None, ["a"]):
        assert not session.ask(verb="put", path=path, data=data)["ok"], path
        assert not session.ask(verb="remove", path=path)["ok"], path
    assert {one.name for one in tmp_path.iterdir()} == {"spool"}


def test_no_link_is_followed_out_of_the_spool(session: Unrun, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (tmp_path / "spool/jobs/away").symlink_to(outside)
    (tmp_path / "spool/jobs/file").symlink_to(outside / "kept")
    assert not session.ask(verb="put", path="jobs/away/new", data="")["ok"]
    assert not session.ask(verb="read", path="jobs/away/kept", most=9)["ok"]
    assert not session.ask(verb="read", path="jobs/file", most=9)["ok"]
    assert session.ask(verb="put", path="jobs/file", data="")["ok"], "a link is replaced, not written through"
    (tmp_path / "spool/jobs/1").mkdir()
    (tmp_path / "spool/jobs/1/in").symlink_to(outside)
    assert session.ask(verb="remove", path="jobs/1")["ok"] and session.ask(verb="remove", path="jobs/away")["ok"]
    assert (outside / "kept").read_text() == "kept" and [one.name for one in outside.iterdir()] == ["kept"]


def test_an_act_is_logged_before_it_is_done(session: Unrun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user may kill the session as soon as it is done: a line that came later would not come."""
    asked: dict[str, dict[str, Any]] = {
        "submit": {"options": [], "comment": "", "tag": "ejb-1.0", "script": "#!/bin/sh\n"},
        "cancel": {"ids": ["12"]},
        "put": {"path": "jobs/a", "data": ""},
        "read": {"path": "jobs/a"},
        "remove": {"path": "jobs/a"},
    }

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for verb, fields in asked.items():
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(session, "run" if verb in ("submit", "cancel") else verb, killed)
            session.ask(verb=verb, **fields)
        assert session.logged[-1].split(" ")[0] == verb
    assert "tag='ejb-1.0'" in " ".join(session.logged)
    assert not session.ask(verb="remove", path="jobs/none")["ok"]
    assert session.logged[-1].endswith(": No such file or directory"), "and what became of it, where it failed"


def test_what_is_no_plain_file_of_the_user_is_not_read(session: Unrun, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spool/jobs/fifo")
    assert "regular" in session.ask(verb="read", path="jobs/fifo", most=9)["error"]
    assert not session.ask(verb="read", path="/dev/zero", most=9)["ok"]


def test_a_hard_link_to_a_file_of_another_is_neither_read_nor_written(session: Unrun, tmp_path: Path) -> None:
    """Linux may let a user make one of a file in any folder that may be searched (`fs.protected_hardlinks` is 0)."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    secret, link = tmp_path / "secret", tmp_path / "spool/jobs/out"
    secret.write_text("another's")
    os.chown(secret, 65534, 65534)
    os.link(secret, link)
    assert session.ask(verb="read", path="jobs/out", most=99).get("refused")
    assert session.ask(verb="put", path="jobs/out", data=base64.b64encode(b"mine").decode())["ok"]
    assert (link.read_bytes(), secret.read_bytes()) == (b"mine", b"another's")
    assert session.ask(verb="remove", path="jobs/out")["ok"] and secret.exists()
    os.link(secret, link)
    with pytest.raises(NotTheirs):
        OwnFiles().read(link, 99)
    with pytest.raises(NotTheirs):
        read_plain(link, 99, owner=os.geteuid(), follow=True)


def test_what_is_swapped_while_it_is_looked_at_leads_nowhere_else(session: Unrun, tmp_path: Path) -> None:
    """A file, and a folder, that are links to something outside in every other moment."""
    outside, jobs = tmp_path / "outside", tmp_path / "spool/jobs"
    outside.mkdir()
    (outside / "out").write_text("outside")
    for name in ("1", "kept"):
        (jobs / name).mkdir(mode=0o700)
        (jobs / name / "out").write_text("inside")
    (jobs / "kept" / "link").symlink_to(outside / "out")
    (jobs / "link").symlink_to(outside)
    over = threading.Event()

    def swap() -> None:
        libc = ctypes.CDLL(None)
        pairs = [(jobs / "1", jobs / "link"), (jobs / "kept" / "out", jobs / "kept" / "link")]
        while not over.is_set():
            for one, other in pairs:  # both names at once: RENAME_EXCHANGE
                libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes] = set()
    try:
        for _ in range(300):
            for path in ("jobs/1/out", "jobs/kept/out"):
                answer = session.ask(verb="read", path=path, most=99)
                seen.add(base64.b64decode(answer["data"]) if answer["ok"] else b"refused")
            session.ask(verb="put", path="jobs/1/put", data="")
            session.ask(verb="remove", path="jobs/1/put")
            session.ask(verb="put", path="jobs/1/more/put", data="")
            session.ask(verb="remove", path="jobs/1/more")
    finally:
        over.set()
        thread.join()
    assert seen <= {b"inside", b"refused"} and b"inside" in seen
    assert sorted(outside.iterdir()) == [outside / "out"]


@pytest.mark.parametrize(("level", "mode"), [("spool", 0o750), ("spool", 0o707), ("", 0o777), ("", 0o770)])
def test_a_spool_that_others_could_have_made_is_refused(session: Unrun, tmp_path: Path, level: str, mode: int) -> None:
    (tmp_path / level).chmod(mode)
    answer = session.ask(verb="put", path="jobs/a", data="")
    assert answer.get("refused"), answer


SUBMIT: dict[str, Any] = {"verb": "submit", "tag": "ejb-3f.1", "comment": "mine ", "options": ["--ntasks=4"]}


def test_a_submission_is_made_of_its_parts(session: Unrun) -> None:
    assert session.ask(**SUBMIT, file="/dev/stdin", args=["-x", "; id"])["ok"]
    assert session.ask(**{**SUBMIT, "verb": "test_only"})["ok"]
    assert session.ran == [
        ["sbatch", "--ntasks=4", "--comment=mine ejb-3f.1", "/dev/stdin", "-x", "; id"],
        ["sbatch", "--ntasks=4", "--test-only"],
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"options": ["--uid=0"]}, {"options": ["--gid=0"]}, {"options": ["--wrap=id"]}, {"options": ["--get-user-env"]},
        {"options": ["--export-file=/etc/shadow"]}, {"options": ["--clusters=x"]}, {"options": ["--bbf=/etc/shadow"]},
        {"options": ["-n4"]}, {"options": ["--ntasks", "4"]}, {"options": ["x"]}, {"options": ["--"]},
        {"options": ["--nta=4"]}, {"options": "--ntasks=4"}, {"options": [["--ntasks=4"]]}, {"options": None},
        {"tag": "x"}, {"tag": ""}, {"tag": "ejb-3f.1 --uid=0"}, {"tag": "ejb-3f.1\n"}, {"comment": "x"},
        {"file": "script", "args": []}, {"file": "--uid=0", "args": []}, {"environment": {"A=B": "c"}},
        {"environment": {"A": "b\0"}}, {"environment": {"A": 1}}, {"environment": []}, {"args": [1], "file": "/x"},
    ],
)  # fmt: skip
def test_what_is_no_submission_is_refused(session: Unrun, change: dict[str, Any]) -> None:
    answer = session.ask(**{**SUBMIT, **change})
    assert answer.get("refused") and answer["error"], answer
    assert session.ran == []


def test_changes_of_jobs_are_those_of_a_short_list(session: Unrun) -> None:
    assert session.ask(verb="cancel", ids=["12", "13_4"])["ok"]
    assert session.ask(verb="update", id="12", change="uhold")["ok"]
    assert session.ask(verb="update", id="12", set={"TimeLimit": "01:00", "NumNodes": "1-1"})["ok"]
    assert session.ran == [
        ["scancel", "12", "13_4"],
        ["scontrol", "uhold", "12"],
        ["scontrol", "update", "JobId=12", "TimeLimit=01:00", "NumNodes=1-1"],
    ]
    for request in (
        {"verb": "cancel", "ids": ["--user=bob"]}, {"verb": "cancel", "ids": ["1;id"]}, {"verb": "cancel", "ids": "12"},
        {"verb": "update", "id": "12", "change": "shutdown"}, {"verb": "update", "id": "12", "set": {"UserId": "0"}},
        {"verb": "update", "id": "12", "set": {"TimeLimit": "1 Account=x"}}, {"verb": "update", "id": "x", "set": {}},
        {"verb": "reconfigure"}, {"verb": "run", "argv": ["id"]}, {"verb": "folder"}, {"verb": ["cancel"]}, {},
    ):  # fmt: skip
        assert session.ask(**request).get("refused"), request
    assert len(session.ran) == 3


def test_what_was_asked_by_an_old_look_at_a_job_is_not_done(tmp_path: Path) -> None:
    """Its session began late. By then the number may be another job's."""
    scancel = tmp_path / "scancel"
    scancel.write_text(f"#!/bin/sh\necho $* >> {tmp_path}/cancelled\n")
    scancel.chmod(0o755)
    config = {"spool": str(tmp_path), "path": f"{tmp_path}:/usr/bin:/bin", "environment": {}, "batch": "slurm"}
    session = ejb_as.Session(pwd.getpwuid(os.geteuid()), config)
    for id, until_s in (("12", time.monotonic() - 0.1), ("13", time.monotonic() + 60)):
        request = {"verb": "cancel", "ids": [id], "timeout_s": 30, "until_s": until_s}
        assert session.answer(json.dumps(request).encode())["timed_out"] is (id == "12")
    assert (tmp_path / "cancelled").read_text() == "13\n"


def test_an_sbatch_that_reads_no_environment_is_started_in_it(tmp_path: Path) -> None:
    """Root's configuration says still which Slurm is asked, and which program is run."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\necho "$A $SLURM_CONF"\n')
    sbatch.chmod(0o755)
    site = {"SLURM_CONF": "/site"}
    config = {"spool": str(tmp_path), "path": f"{tmp_path}:/usr/bin:/bin", "environment": site, "batch": "slurm"}
    session = ejb_as.Session(pwd.getpwuid(os.geteuid()), config)
    users = {"A": "b", "SLURM_CONF": "/own", "PATH": "/nowhere:/bin"}
    request = {**SUBMIT, "script": "#!/bin/sh\n"}
    assert session.answer(json.dumps({**request, "started_in": users}).encode())["stdout"] == "b /site\n"
    wrongs: list[Any] = [{"A=B": "c"}, {"A": "b\0"}, {"A": 1}, []]
    for wrong in wrongs:
        assert session.answer(json.dumps({**request, "started_in": wrong}).encode()).get("refused"), wrong


WORDS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["..", "/", "/etc/passwd", "--uid=0", "--wrap=id", "--ntasks=1", "ejb-1.1", "0", "\0", "jobs/a"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=8,
)
FIELDS = "path data mode link most offset folders options tag comment file args environment ids id change set until_s"
REQUESTS = st.fixed_dictionaries(
    {"verb": st.sampled_from(["prepare", "submit", "cancel", "update", "put", "read", "remove", "test_only"])},
    optional=dict.fromkeys(FIELDS.split(), VALUES),
)


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=st.one_of(REQUESTS, VALUES), garbage=st.binary(max_size=20))
def test_whatever_is_asked_has_an_answer_and_leaves_everything_else_alone(
    session: Unrun, tmp_path: Path, request: Any, garbage: bytes
) -> None:
    for line in (json.dumps(request).encode(), json.dumps(request).encode()[:-1], garbage):
        session.logged.clear()
        answer = session.answer(line)
        assert isinstance(answer["ok"], bool) and session.logged
        json.dumps(answer)
    for argv in session.ran:
        assert argv[0] in ("sbatch", "scancel", "scontrol")
        assert not any(word.startswith(("--uid", "--gid", "--wrap", "--export-file=/e")) for word in argv)
    assert {one.name for one in tmp_path.iterdir()} == {"spool"}


@pytest.fixture(params=["openpbs", "torque"])
def pbs(request: pytest.FixtureRequest, tmp_path: Path) -> Unrun:
    return Unrun(tmp_path / "spool", request.param)


QSUB: dict[str, Any] = {"verb": "submit", "tag": "ejb-3f.1", "options": ["-Nx", "-lnodes=1:ppn=2", "-h"]}


def test_a_submission_to_pbs_is_made_of_its_parts(pbs: Unrun) -> None:
    assert pbs.ask(**QSUB)["ok"] and pbs.ask(verb="cancel", ids=["12.head", "13[4].head"])["ok"]
    assert pbs.ask(verb="update", id="12.head", change="qhold")["ok"]
    assert pbs.ask(verb="update", id="12.head", set={"walltime": "00:01:00", "nodes": "1:ppn=1"})["ok"]
    assert pbs.ran == [
        ["qsub", "-joe", "-o/dev/null", "-e/dev/null/ejb-3f.1", "-Nx", "-lnodes=1:ppn=2", "-h"],
        ["qdel", "12.head", "13[4].head"],
        ["qhold", "-h", "u", "12.head"],
        ["qalter", "-lwalltime=00:01:00", "-lnodes=1:ppn=1", "12.head"],
    ]


@pytest.mark.parametrize(
    "request_",
    [
        *({**QSUB, "options": [one]} for one in (
            "-uroot", "-Wgroup_list=root", "-Wuser_list=root", "-Wblock=true", "-Wstagein=/a@h:/b", "-V", "-vA=b", "-I",
            "-X", "-C#X", "-z", "-e/etc/x", "-o/etc/x", "-joe", "-l", "-hx", "--", "/etc/passwd", "-", "-N", "-Nx\0",
        )),
        {**QSUB, "tag": "../etc"}, {**QSUB, "tag": ""}, {**QSUB, "options": "-h"}, {**QSUB, "verb": "test_only"},
        {"verb": "cancel", "ids": ["-W force"]}, {"verb": "cancel", "ids": ["all"]},
        {"verb": "update", "id": "12", "change": "qrerun"}, {"verb": "update", "id": "12", "change": "release"},
        {"verb": "update", "id": "12", "set": {"walltime": "1 -A x"}},
        {"verb": "update", "id": "12", "set": {"e": "/x"}},
        {"verb": "update", "id": "12", "set": ["walltime=1"]}, {"verb": "update", "id": "12"},
    ],
)  # fmt: skip
def test_what_is_nothing_for_pbs_is_refused(pbs: Unrun, request_: dict[str, Any]) -> None:
    answer = pbs.ask(**request_)
    assert answer.get("refused") and answer["error"], answer
    assert pbs.ran == []


def test_torques_way_to_submit_for_another_user_is_no_project_of_openpbs(tmp_path: Path) -> None:
    assert Unrun(tmp_path, "openpbs").ask(**{**QSUB, "options": ["-Pproject"]})["ok"]
    assert Unrun(tmp_path, "torque").ask(**{**QSUB, "options": ["-Proot"]})["refused"]


def test_a_batch_system_that_it_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ejb_as.Refused, match="the batch system is not allowed: 'lsf'"):
        Unrun(tmp_path, "lsf")


def test_options_are_told_in_one_word_each() -> None:
    typed = ["-n", "4", "-N2", "--part=x", "--time", "5", "-H", "--nice", "-vQ", "--tasks=3"]
    found = one_word_each(typed)
    assert found == [
        *("--ntasks=4", "--nodes=2", "--partition=x", "--time=5", "--hold", "--nice", "--verbose", "--quiet"),
        "--ntasks-per-node=3",
    ]
    for wrong in (["-n"], ["x"], ["--hold=1"], ["--no-such"], ["--"], ["-?"]):
        with pytest.raises(BatchError):
            one_word_each(wrong)


def test_the_helper_knows_the_options_that_jobs_may_have() -> None:
    """What EJB itself hands on to sbatch is on the list, and what it refuses of users is not."""
    kept = {option.name for option in OPTIONS if option.use is not Use.REFUSED} - {"get-user-env", "wait"}
    assert not {name for name in kept if not re.fullmatch(ejb_as.SBATCH, f"--{name}")}
    refused = {option.name for option in OPTIONS if option.use is Use.REFUSED}
    assert not {name for name in refused if re.fullmatch(ejb_as.SBATCH, f"--{name}")}
    assert {option.name for option in OPTIONS if option.argument is Argument.NONE}  # the table is not empty
