"""`ejb-as` as root with accounts of every kind: in a copy of /etc that this test's own mount namespace alone sees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.identity import ejb_as
from tests.fakes.socketunit import PYTHON
from tests.integration.users import missing_users

pytestmark = pytest.mark.skipif(bool(missing_users()), reason=missing_users())

FIRST, GROUPS = 61_000, 70
LONG = "l" * 64
SHELLS = {"ejb-service": "/usr/sbin/nologin", "closed": "/usr/sbin/nologin"}
# As they are today. `old` was the name of the number that is `new`'s now; `homeless` has its home elsewhere.
NAMES = ("ejb-service", "many", "new", "closed", "homeless", LONG, LONG + "l")
_IN_A_COPY = """
set -e
cp -a /etc "$1/etc"
cat "$1/passwd" >>"$1/etc/passwd"
cat "$1/group" >>"$1/etc/group"
mount --make-rprivate /
mount --bind "$1/etc" /etc
shift
exec "$@"
"""
# Each session as sudo starts it: on standard input what is asked, on standard output its answers.
_SESSIONS = """
import json, subprocess, sys
for case in json.load(sys.stdin):
    lines = "".join(json.dumps(one) + "\\n" for one in case)
    done = subprocess.run(sys.argv[2:], input=lines, capture_output=True, text=True, env={"SUDO_UID": sys.argv[1]})
    print(json.dumps([json.loads(line) for line in done.stdout.splitlines()]))
"""


class Accounts:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = [
            f"{name}:x:{FIRST + at}:{FIRST + at}::{folder}/{name}:{SHELLS.get(name, '/bin/sh')}\n"
            for at, name in enumerate(NAMES)
        ]
        (folder / "passwd").write_text("".join(rows))
        groups = [f"{name}:x:{FIRST + at}:\n" for at, name in enumerate(NAMES)]
        groups += [f"team{at}:x:{FIRST + 100 + at}:many\n" for at in range(GROUPS)]
        (folder / "group").write_text("".join(groups))
        for at, name in enumerate(NAMES):
            if name != "homeless":
                (folder / name).mkdir(mode=0o700)
                os.chown(folder / name, FIRST + at, FIRST + at)
        (folder / "old" / ".ejb").mkdir(parents=True, mode=0o700)
        for path in (folder / "old", folder / "old" / ".ejb"):
            os.chown(path, FIRST + NAMES.index("new"), -1)
        (folder / "bin").mkdir()
        (folder / "bin" / "scancel").write_text("#!/bin/sh\nid -G; umask\n")
        (folder / "bin" / "scancel").chmod(0o755)
        shutil.copyfile(ejb_as.__file__, folder / "ejb-as")
        found = {"service": "ejb-service", "spool": f"{folder}/%u/.ejb", "path": f"{folder}/bin:/usr/bin:/bin"}
        (folder / "ejb-as.json").write_text(json.dumps(found))

    def ask(self, *cases: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        argv = ["unshare", "--mount", "sh", "-c", _IN_A_COPY, "sh", str(self.folder), sys.executable, "-c", _SESSIONS]
        argv += [str(FIRST), PYTHON, "-IS", str(self.folder / "ejb-as"), str(self.folder / "ejb-as.json")]
        done = subprocess.run(
            argv, input=json.dumps(cases), capture_output=True, text=True, timeout=120, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def accounts() -> Iterator[Accounts]:
    folder = Path(tempfile.mkdtemp(prefix="ejb-accounts-"))
    folder.chmod(0o755)
    try:
        yield Accounts(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_what_has_become_of_accounts_is_what_counts(accounts: Accounts) -> None:
    asked: list[dict[str, Any]] = [{"verb": "prepare"}, {"verb": "cancel", "ids": ["1"], "umask": 0o027}]
    users = ("many", "old", "new", "closed", "homeless", LONG, LONG + "l")
    many, old, new, closed, homeless, long, longer = accounts.ask(*([{"user": user}, *asked] for user in users))
    groups, umask = many[2]["stdout"].splitlines()
    assert len(groups.split()) == GROUPS + 1 and umask == "0027", "all of them, and the umask of the submission"
    assert old == [{"ok": False, "error": "there is no such user", "refused": True}], "its number is another name's"
    assert new[0]["spool"] == f"{accounts.folder}/new/.ejb" and new[1]["ok"], "which has nothing of the other's spool"
    assert closed == [{"ok": False, "error": "user closed has no shell to log in with", "refused": True}]
    assert homeless[0]["ok"] and homeless[1] == {"ok": False, "error": "No such file or directory", "errno": 2}
    assert homeless[2]["ok"], "a job of a user without a home can be cancelled all the same"
    assert long[1]["ok"] and longer[0]["refused"] and "is not allowed" in longer[0]["error"]
    assert list((accounts.folder / "old" / ".ejb").iterdir()) == []
